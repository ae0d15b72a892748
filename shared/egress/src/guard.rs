//! Where requests may go. Documents name URLs, so a document could name our own network: the metadata service of the
//! cloud, a database without a password, the neighbour's loopback.
//!
//! Addresses are judged, never names: literal ones when the request is made, others when the name was looked up, and
//! the connection uses the very addresses that were judged. A name that changes between check and use gains nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// Which URLs and addresses are allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Ranges that are open although they are not public. An IPv4 range opens the IPv6 forms of its addresses too.
    pub allow: Vec<IpNet>,
    pub schemes: UrlSchemes,
}

/// Which schemes are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlSchemes {
    /// `http` and `https`.
    HttpAndHttps,
    /// `https` alone.
    HttpsOnly,
}

/// Why a request may not go where it wants.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyViolation {
    /// The text is no URL.
    #[error("not an absolute URL: {0}")]
    Url(String),
    /// The scheme is not allowed.
    #[error("the scheme {0} is not allowed in URLs: use {1}")]
    Scheme(String, &'static str),
    /// The URL carries a user or password.
    #[error("a URL with user or password is not allowed: give credentials in a header")]
    Userinfo,
    /// The URL has no host, or port 0.
    #[error("the URL names no host and port that could be called")]
    NoHost,
    /// The URL names an address that is not allowed.
    #[error("the address {address} is not allowed: {range}")]
    Address { address: IpAddr, range: &'static str },
    /// The URL's name leads to no address that is allowed.
    #[error("the name {name} leads to {address}, which is not allowed: {range}")]
    Name { name: String, address: IpAddr, range: &'static str },
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(groups: [u16; 4], prefix: u8) -> Ipv6Net {
    let [a, b, c, d] = groups;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), prefix)
}

/// IPv4 that is not public, by IANA's registry of special-purpose addresses. The first row that fits names it.
const CLOSED_V4: [(Ipv4Net, &str); 17] = [
    (v4(0, 0, 0, 0, 8), "unspecified"),
    (v4(10, 0, 0, 0, 8), "private network"),
    (v4(100, 64, 0, 0, 10), "shared by a carrier (CGNAT)"),
    (v4(127, 0, 0, 0, 8), "loopback"),
    (v4(169, 254, 0, 0, 16), "link-local, where clouds keep their metadata service"),
    (v4(172, 16, 0, 0, 12), "private network"),
    (v4(192, 0, 0, 0, 24), "reserved for protocols"),
    (v4(192, 0, 2, 0, 24), "documentation"),
    (v4(192, 88, 99, 0, 24), "6to4 relay"),
    (v4(192, 168, 0, 0, 16), "private network"),
    (v4(198, 18, 0, 0, 15), "benchmarks"),
    (v4(198, 51, 100, 0, 24), "documentation"),
    (v4(203, 0, 113, 0, 24), "documentation"),
    (v4(224, 0, 0, 0, 4), "multicast"),
    (v4(255, 255, 255, 255, 32), "broadcast"),
    (v4(240, 0, 0, 0, 4), "reserved"),
    // Public by registry; on Azure it answers to every virtual machine with that machine's own settings.
    (v4(168, 63, 129, 16, 32), "a cloud's metadata service"),
];

/// IPv6 that is not public. What lies outside of `2000::/3` and has no row is closed too.
const CLOSED_V6: [(Ipv6Net, &str); 11] = [
    (v6([0xfc00, 0, 0, 0], 7), "private network (unique local)"),
    (v6([0xfe80, 0, 0, 0], 10), "link-local"),
    (v6([0xfec0, 0, 0, 0], 10), "private network (site-local)"),
    (v6([0xff00, 0, 0, 0], 8), "multicast"),
    (v6([0x64, 0xff9b, 1, 0], 48), "a network's own NAT64"),
    (v6([0x100, 0, 0, 0], 64), "discarded"),
    (v6([0x2001, 0, 0, 0], 32), "Teredo tunnel"),
    (v6([0x2001, 0, 0, 0], 23), "reserved for protocols"),
    (v6([0x2001, 0xdb8, 0, 0], 32), "documentation"),
    (v6([0x2002, 0, 0, 0], 16), "6to4 tunnel"),
    (v6([0x3fff, 0, 0, 0], 20), "documentation"),
];

const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0, 0], 96);
const GLOBAL_UNICAST: Ipv6Net = v6([0x2000, 0, 0, 0], 3);

impl Policy {
    /// Public addresses only, `http` and `https`.
    pub fn public() -> Self {
        Self { allow: Vec::new(), schemes: UrlSchemes::HttpAndHttps }
    }

    /// Public addresses and this machine's own; for local mode.
    pub fn with_loopback() -> Self {
        Self { allow: vec![v4(127, 0, 0, 0, 8).into(), IpAddr::V6(Ipv6Addr::LOCALHOST).into()], ..Self::public() }
    }

    /// Opens further networks: a comma-separated list such as `10.0.0.0/8, fd00::/8`; nothing opens nothing.
    ///
    /// # Errors
    /// The first entry that is no network.
    pub fn and_networks(mut self, list: &str) -> Result<Self, String> {
        for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let network = entry.parse().map_err(|_| format!("{entry:?} is no network such as 10.0.0.0/8"))?;
            self.allow.push(network);
        }
        Ok(self)
    }

    /// Reads a URL and checks all of it that can be checked before a lookup.
    pub fn check_url(&self, text: &str) -> Result<Url, PolicyViolation> {
        let url = Url::parse(text).map_err(|error| PolicyViolation::Url(error.to_string()))?;
        match (url.scheme(), self.schemes) {
            ("https", _) | ("http", UrlSchemes::HttpAndHttps) => {}
            (other, UrlSchemes::HttpAndHttps) => {
                return Err(PolicyViolation::Scheme(other.to_owned(), "http or https"));
            }
            (other, UrlSchemes::HttpsOnly) => return Err(PolicyViolation::Scheme(other.to_owned(), "https")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(PolicyViolation::Userinfo);
        }
        if url.port() == Some(0) {
            return Err(PolicyViolation::NoHost);
        }
        // Decimal, octal, hexadecimal and short forms of IPv4 are addresses here already: the parser reads them as
        // browsers do.
        match url.host() {
            None => return Err(PolicyViolation::NoHost),
            Some(Host::Ipv4(address)) => self.check_address(address.into())?,
            Some(Host::Ipv6(address)) => self.check_address(address.into())?,
            Some(Host::Domain(_)) => {}
        }
        Ok(url)
    }

    /// Whether a connection to `address` is allowed.
    pub fn check_address(&self, address: IpAddr) -> Result<(), PolicyViolation> {
        let refused = |range| Err(PolicyViolation::Address { address, range });
        if self.allows(address) {
            return Ok(());
        }
        match address {
            IpAddr::V4(inner) => closed_v4(inner).map_or(Ok(()), refused),
            IpAddr::V6(outer) => match embedded(outer) {
                Some(inner) if self.allows(inner.into()) => Ok(()),
                Some(inner) => closed_v4(inner).map_or(Ok(()), refused),
                None => closed_v6(outer).map_or(Ok(()), refused),
            },
        }
    }

    fn allows(&self, address: IpAddr) -> bool {
        self.allow.iter().any(|range| range.contains(&address))
    }
}

/// The IPv4 address that packets to `outer` end at: mapped addresses are IPv4 spelt otherwise, and NAT64 translates.
/// Tunnels (6to4, Teredo) and the deprecated compatible form are closed as such, whatever they embed.
fn embedded(outer: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., a, b, c, d] = outer.octets();
    let inner = Ipv4Addr::new(a, b, c, d);
    if NAT64.contains(&outer) { Some(inner) } else { outer.to_ipv4_mapped() }
}

fn closed_v4(address: Ipv4Addr) -> Option<&'static str> {
    CLOSED_V4.iter().find(|(range, _)| range.contains(&address)).map(|(_, name)| *name)
}

fn closed_v6(address: Ipv6Addr) -> Option<&'static str> {
    if address.is_unspecified() {
        return Some("unspecified");
    }
    if address.is_loopback() {
        return Some("loopback");
    }
    let row = CLOSED_V6.iter().find(|(range, _)| range.contains(&address)).map(|(_, name)| *name);
    row.or_else(|| if GLOBAL_UNICAST.contains(&address) { None } else { Some("not global unicast") })
}

/// A resolver that passes on only what a policy allows.
pub(crate) struct GuardedResolver {
    policy: Arc<Policy>,
    inner: Arc<dyn Resolve>,
}

impl GuardedResolver {
    pub(crate) fn new(policy: Arc<Policy>, inner: Arc<dyn Resolve>) -> Self {
        Self { policy, inner }
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = Arc::clone(&self.policy);
        let text = name.as_str().to_owned();
        let resolving = self.inner.resolve(name);
        Box::pin(async move {
            let mut refused = None;
            let mut open = Vec::new();
            for address in resolving.await? {
                match policy.check_address(address.ip()) {
                    Ok(()) => open.push(address),
                    Err(refusal) => refused = Some(refusal),
                }
            }
            match refused {
                Some(PolicyViolation::Address { address, range }) if open.is_empty() => {
                    Err(PolicyViolation::Name { name: text, address, range }.into())
                }
                _ if open.is_empty() => Err(format!("the name {text} has no address").into()),
                _ => Ok(Box::new(open.into_iter()) as Addrs),
            }
        })
    }
}

/// The machine's own resolver.
pub(crate) struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests;
