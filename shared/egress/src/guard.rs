//! The policy for outbound requests. Without it, a URL in a document could refer to our own network: the metadata
//! service of the cloud, a database without a password, or another service on loopback.
//!
//! The policy checks addresses, not names. Literal addresses are checked before the request, and others after the
//! lookup. The connection uses the checked addresses, so a later change of the DNS records has no effect.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// The allowed addresses. The default allows the public ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Allowed ranges that are not public. An IPv4 range also allows the IPv6 forms of its addresses.
    allow: Vec<IpNet>,
}

/// The reason why a request is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyViolation {
    #[error("not an absolute URL: {0}")]
    Url(String),
    #[error("the scheme {0} is not allowed in URLs: use http or https")]
    Scheme(String),
    #[error("a URL with user or password is not allowed: give credentials in a header")]
    Userinfo,
    #[error("the URL has no host, or the port 0")]
    NoHost,
    #[error("the address {address} is not allowed: {range}")]
    Address { address: IpAddr, range: &'static str },
    /// The name in the URL has no allowed address.
    #[error("the name {name} resolves to {address}, which is not allowed: {range}")]
    Name { name: String, address: IpAddr, range: &'static str },
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix))
}

const fn v6(groups: [u16; 4], prefix: u8) -> IpNet {
    let [a, b, c, d] = groups;
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), prefix))
}

const LOOPBACK: [IpNet; 2] = [v4(127, 0, 0, 0, 8), IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128))];

/// Ranges that are not public, according to IANA's registries of special-purpose addresses. The first matching row names
/// the range. Other IPv6 addresses outside of `2000::/3` are closed too.
const CLOSED: [(IpNet, &str); 30] = [
    (v4(0, 0, 0, 0, 8), "unspecified"),
    (v4(10, 0, 0, 0, 8), "private network"),
    (v4(100, 64, 0, 0, 10), "shared by a carrier (CGNAT)"),
    (LOOPBACK[0], "loopback"),
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
    // This address is public in the registry, but on Azure it serves the settings of the virtual machine.
    (v4(168, 63, 129, 16, 32), "a cloud's metadata service"),
    (v6([0; 4], 128), "unspecified"),
    (LOOPBACK[1], "loopback"),
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

const NAT64: IpNet = v6([0x64, 0xff9b, 0, 0], 96);
const GLOBAL_UNICAST: IpNet = v6([0x2000, 0, 0, 0], 3);

impl Policy {
    /// Allows public addresses.
    pub fn public() -> Self {
        Self::default()
    }

    /// Also allows loopback, for local mode.
    pub fn with_loopback() -> Self {
        Self { allow: LOOPBACK.to_vec() }
    }

    /// Allows further networks: a comma-separated list such as `10.0.0.0/8, fd00::/8`.
    ///
    /// # Errors
    /// Returns the first entry that is not a network, if there is one.
    pub fn and_networks(mut self, list: &str) -> Result<Self, String> {
        for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let network = entry.parse().map_err(|_| format!("{entry:?} is not a network such as 10.0.0.0/8"))?;
            self.allow.push(network);
        }
        Ok(self)
    }

    /// Parses a URL and checks it as far as possible before a lookup.
    pub fn check_url(&self, text: &str) -> Result<Url, PolicyViolation> {
        let url = Url::parse(text).map_err(|error| PolicyViolation::Url(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(PolicyViolation::Scheme(url.scheme().to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(PolicyViolation::Userinfo);
        }
        if url.port() == Some(0) {
            return Err(PolicyViolation::NoHost);
        }
        // The parser has already converted decimal, octal, hexadecimal and short forms of IPv4.
        match url.host() {
            None => return Err(PolicyViolation::NoHost),
            Some(Host::Ipv4(address)) => self.check_address(address.into())?,
            Some(Host::Ipv6(address)) => self.check_address(address.into())?,
            Some(Host::Domain(_)) => {}
        }
        Ok(url)
    }

    pub(crate) fn check_address(&self, address: IpAddr) -> Result<(), PolicyViolation> {
        let destination = destination(address);
        let is_allowed = |range: &IpNet| range.contains(&address) || range.contains(&destination);
        match closed(destination) {
            Some(range) if !self.allow.iter().any(is_allowed) => Err(PolicyViolation::Address { address, range }),
            _ => Ok(()),
        }
    }
}

/// Returns the address at which packets to `address` arrive: the embedded IPv4 address of mapped addresses and NAT64.
/// Tunnels (6to4, Teredo) and the deprecated compatible form are closed, whatever address they embed.
fn destination(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(outer) if NAT64.contains(&address) => {
            let [.., a, b, c, d] = outer.octets();
            Ipv4Addr::new(a, b, c, d).into()
        }
        _ => address.to_canonical(),
    }
}

fn closed(address: IpAddr) -> Option<&'static str> {
    let row = CLOSED.iter().find(|(range, _)| range.contains(&address)).map(|(_, name)| *name);
    let is_global = address.is_ipv4() || GLOBAL_UNICAST.contains(&address);
    row.or(if is_global { None } else { Some("not global unicast") })
}

/// Returns only addresses that the policy allows.
pub(crate) struct GuardedResolver {
    pub(crate) policy: Arc<Policy>,
    pub(crate) inner: Arc<dyn Resolve>,
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
