use proptest::prelude::*;

use super::*;

/// Literal addresses in spellings of a URL, by the result of the public policy.
const TABLE: &[(&str, &str)] = &[
    (
        "open",
        "1.1.1.1 8.8.8.8 100.63.255.255 100.128.0.1 172.15.255.255 172.32.0.1 169.253.255.255 192.167.255.255 \
         198.17.255.255 198.20.0.1 223.255.255.254 [2606:4700:4700::1111] [2a00:1450:4001:800::200e] \
         [2001:4860:4860::8888] [::ffff:8.8.8.8] [64:ff9b::8.8.8.8]",
    ),
    (
        "loopback",
        "127.0.0.1 127.255.255.254 127.1 0x7f.1 0177.0.0.1 2130706433 0x7f000001 017700000001 %31%32%37.0.0.1 \
         １２７.0.0.1 127。0。0。1 127.0.0.1. [::1] [0:0:0:0:0:0:0:1] [::ffff:127.0.0.1] [::ffff:7f00:1] \
         [64:ff9b::7f00:1]",
    ),
    ("not global unicast", "[::127.0.0.1] [4000::1] [::ffff:0:127.0.0.1]"),
    ("unspecified", "0.0.0.0 0 0.1.2.3 [::] [::ffff:0.0.0.0]"),
    (
        "private network",
        "10.0.0.1 10.255.255.255 172.16.0.1 172.31.255.255 192.168.0.1 3232235521 [::ffff:10.0.0.1] \
         [64:ff9b::10.0.0.1]",
    ),
    ("private network (unique local)", "[fc00::1] [fd00:ec2::254] [fdff:ffff::1]"),
    ("private network (site-local)", "[fec0::1]"),
    ("shared by a carrier (CGNAT)", "100.64.0.1 100.100.100.200 100.127.255.255"),
    (
        "link-local, where clouds keep their metadata service",
        "169.254.169.254 169.254.170.2 2852039166 0xa9fea9fe 0251.0376.0251.0376 [::ffff:169.254.169.254] \
         [::ffff:a9fe:a9fe] [64:ff9b::a9fe:a9fe]",
    ),
    ("a cloud's metadata service", "168.63.129.16"),
    ("link-local", "[fe80::1] [febf::1]"),
    ("6to4 tunnel", "[2002:7f00:1::] [2002:a9fe:a9fe::1] [2002:808:808::1]"),
    ("Teredo tunnel", "[2001:0:4136:e378:8000:63bf:3fff:fdd2]"),
    ("a network's own NAT64", "[64:ff9b:1::7f00:1]"),
    ("6to4 relay", "192.88.99.1"),
    ("reserved for protocols", "192.0.0.192 [2001:2::1] [2001:20::1]"),
    ("documentation", "192.0.2.1 198.51.100.1 203.0.113.1 [2001:db8::1] [3fff::1]"),
    ("benchmarks", "198.18.0.1 198.19.255.255"),
    ("discarded", "[100::1]"),
    ("multicast", "224.0.0.1 239.255.255.255 [ff02::1]"),
    ("broadcast", "255.255.255.255"),
    ("reserved", "240.0.0.1"),
];

/// Returns the addresses of [`TABLE`] with their results.
fn table() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE.iter().flat_map(|(result, hosts)| hosts.split(' ').map(move |host| (host, *result)))
}

fn verdict(policy: &Policy, url: &str) -> String {
    match policy.check_url(url) {
        Ok(_) => "open".to_owned(),
        Err(PolicyViolation::Address { range, .. }) => range.to_owned(),
        Err(other) => other.to_string(),
    }
}

#[test]
fn literal_addresses() {
    for (host, expected) in table() {
        for url in [format!("http://{host}/"), format!("https://{host}:8443/a?b#c")] {
            assert_eq!(verdict(&Policy::public(), &url), expected, "{url}");
        }
    }
}

#[test]
fn the_loopback_policy_opens_only_loopback() {
    for (host, expected) in table() {
        let expected = if expected == "loopback" { "open" } else { expected };
        assert_eq!(verdict(&Policy::with_loopback(), &format!("http://{host}/")), expected, "{host}");
    }
}

#[test]
fn an_allowed_range_opens_only_itself() {
    let policy = Policy::public().and_networks("10.1.0.0/16, fd12::/32").unwrap();
    for (host, expected) in [
        ("10.1.2.3", "open"),
        ("[::ffff:10.1.2.3]", "open"),
        ("[64:ff9b::10.1.2.3]", "open"),
        ("[fd12::7]", "open"),
        ("1.1.1.1", "open"),
        ("10.2.0.1", "private network"),
        ("[fd13::7]", "private network (unique local)"),
        ("127.0.0.1", "loopback"),
    ] {
        assert_eq!(verdict(&policy, &format!("https://{host}/")), expected, "{host}");
    }
}

#[test]
fn urls_that_are_rejected_before_a_lookup() {
    let mut report = String::new();
    for url in [
        "",
        "example.org",
        "//example.org/",
        "/path",
        "http://",
        "http://exa mple.org/",
        "http://1.2.3.4.5/",
        "http://256.0.0.1/",
        "http://[::1",
        "http://[fe80::1%25eth0]/",
        "http://example.org:0/",
        "http://example.org:65536/",
        "http://user@example.org/",
        "http://user:secret@example.org/",
        "http://:secret@example.org/",
        "http://example.org@127.0.0.1/",
        "http://example.org\\@127.0.0.1/",
        "ftp://example.org/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_INFO",
        "unix:/var/run/docker.sock",
        "data:text/plain,hello",
        "javascript:alert(1)",
        "https://example.org/",
        "HTTP://EXAMPLE.ORG./",
        "http:example.org",
        "http://bücher.example/",
    ] {
        let verdict = match Policy::public().check_url(url) {
            Ok(url) => format!("open: {url}"),
            Err(refusal) => refusal.to_string(),
        };
        assert!(!verdict.contains("secret"), "{verdict}");
        report.push_str(&format!("{url}\n  {verdict}\n"));
    }
    insta::assert_snapshot!(report);
}

proptest! {
    #[test]
    fn an_embedded_ipv4_address_has_its_policy(address in any::<u32>()) {
        let inner = Ipv4Addr::from(address);
        let policy = Policy::public();
        let open = policy.check_address(inner.into()).is_ok();
        prop_assert_eq!(policy.check_address(inner.to_ipv6_mapped().into()).is_ok(), open);
        let [a, b, c, d] = inner.octets();
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let nat64 = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low);
        prop_assert_eq!(policy.check_address(nat64.into()).is_ok(), open);
        // All spellings of the address in a URL have the same result.
        for host in [format!("{inner}"), format!("{address}"), format!("{address:#x}"), format!("0{address:o}")] {
            prop_assert_eq!(policy.check_url(&format!("http://{host}/")).is_ok(), open, "{}", host);
        }
    }

    #[test]
    fn internal_addresses_of_the_standard_library_are_closed(address in any::<u32>(), wide in any::<u128>()) {
        let policy = Policy::public();
        let v4 = Ipv4Addr::from(address);
        let inner = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast()
            || v4.is_broadcast() || v4.is_unspecified() || v4.is_documentation();
        prop_assert!(!inner || policy.check_address(v4.into()).is_err());
        let v6 = Ipv6Addr::from(wide);
        let inner = v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local() || v6.is_multicast();
        prop_assert!(!inner || policy.check_address(v6.into()).is_err());
    }

    #[test]
    fn arbitrary_urls_do_not_panic(text in "\\PC{0,100}", host in "[0-9a-fx:.\\[\\]%@/]{0,40}") {
        let _ = Policy::public().check_url(&text);
        if let Ok(url) = Policy::public().check_url(&format!("http://{host}/")) {
            prop_assert!(url.host().is_some() && url.username().is_empty());
        }
    }
}

#[test]
fn networks_are_opened_by_a_list() {
    let open = |list: &str, address: &str| {
        let policy = Policy::public().and_networks(list)?;
        Ok::<_, String>(policy.check_address(address.parse().unwrap()).is_ok())
    };
    for (list, address, expected) in [
        ("", "10.1.2.3", Ok(false)),
        ("10.0.0.0/8, fd00::/8", "10.1.2.3", Ok(true)),
        ("10.0.0.0/8, fd00::/8,", "fd00::1", Ok(true)),
        ("10.0.0.0/8", "192.168.0.1", Ok(false)),
        ("10.0.0.0", "10.0.0.0", Err("\"10.0.0.0\" is not a network such as 10.0.0.0/8".to_owned())),
    ] {
        assert_eq!(open(list, address), expected, "{list} {address}");
    }
}
