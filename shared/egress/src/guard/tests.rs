use std::iter;

use proptest::prelude::*;

use super::*;

fn verdict(policy: &Policy, url: &str) -> String {
    match policy.check_url(url) {
        Ok(_) => "open".to_owned(),
        Err(PolicyViolation::Address { range, .. }) => range.to_owned(),
        Err(other) => other.to_string(),
    }
}

/// The file has results of the public policy, each with literal addresses in spellings of a URL.
#[test]
fn literal_addresses() {
    for row in include_str!("../../tests/addresses.txt").lines() {
        let (expected, hosts) = row.split_once(": ").unwrap();
        // The other policy opens only loopback.
        let with_loopback = if expected == "loopback" { "open" } else { expected };
        for url in hosts.split(' ').flat_map(|host| [format!("http://{host}/"), format!("https://{host}:8443/a?b#c")]) {
            assert_eq!(verdict(&Policy::public(), &url), expected, "{url}");
            assert_eq!(verdict(&Policy::with_loopback(), &url), with_loopback, "{url}");
        }
    }
}

#[test]
fn an_allowed_range_opens_only_itself() {
    let invalid = Policy::public().and_networks("10.0.0.0");
    assert_eq!(invalid, Err("\"10.0.0.0\" is not a network such as 10.0.0.0/8".to_owned()));
    assert_eq!(Policy::public().and_networks(""), Ok(Policy::public()));
    let policy = Policy::public().and_networks("10.1.0.0/16, fd12::/32,").unwrap();
    for row in include_str!("../../tests/allowed_range.txt").lines() {
        let (host, expected) = row.split_once(": ").unwrap();
        assert_eq!(verdict(&policy, &format!("https://{host}/")), expected, "{host}");
    }
}

/// A row of the file has a list, hosts, and a part of their refusals or `open`. A host is that of a URL, or a name with an
/// address to which it resolves. Other rows have an invalid list and a part of its error.
#[test]
fn private_receivers() {
    for row in include_str!("../../tests/receivers.txt").lines().filter(|row| !row.starts_with('#')) {
        let (policy, columns): (_, Vec<&str>) = (Policy::public(), row.split(" | ").collect());
        let [list, hosts, expected] = columns[..] else {
            let error = policy.and_receivers(columns[0]).unwrap_err();
            assert!(error.contains(columns[1]), "{row}: {error}");
            continue;
        };
        let policy = policy.and_receivers(list).unwrap();
        for host in hosts.split(' ') {
            let checked = match host.split_once('=') {
                Some((name, address)) => policy.check_address(address.parse().unwrap(), Some(name)),
                None => policy.check_url(&format!("http://{host}:8080/")).map(drop),
            };
            let verdict = checked.map_or_else(|refusal| refusal.to_string(), |()| "open".to_owned());
            assert!(verdict.contains(expected), "{list} {host}: {verdict}");
            let is_private = ["private network", "shared by a carrier"].contains(&expected);
            assert_eq!(verdict.contains("EBB_EGRESS_NETWORKS"), is_private, "{verdict}");
        }
    }
}

#[test]
fn urls_that_are_rejected_before_a_lookup() {
    let mut report = String::new();
    for url in iter::once("").chain(include_str!("../../tests/urls.txt").lines()) {
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
        let open = policy.check_address(inner.into(), None).is_ok();
        prop_assert_eq!(policy.check_address(inner.to_ipv6_mapped().into(), None).is_ok(), open);
        let [a, b, c, d] = inner.octets();
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let nat64 = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low);
        prop_assert_eq!(policy.check_address(nat64.into(), None).is_ok(), open);
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
        prop_assert!(!inner || policy.check_address(v4.into(), None).is_err());
        let v6 = Ipv6Addr::from(wide);
        let inner = v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local() || v6.is_multicast();
        prop_assert!(!inner || policy.check_address(v6.into(), None).is_err());
    }

    #[test]
    fn arbitrary_urls_do_not_panic(text in "\\PC{0,100}", host in "[0-9a-fx:.\\[\\]%@/]{0,40}") {
        let _ = Policy::public().check_url(&text);
        if let Ok(url) = Policy::public().check_url(&format!("http://{host}/")) {
            prop_assert!(url.host().is_some() && url.username().is_empty());
        }
    }
}
