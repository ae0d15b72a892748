//! The policy for outbound requests. Without it, a URL in a document could refer to our own network: the metadata
//! service of the cloud, a database without a password, or another service on loopback.
//!
//! The policy checks addresses, not names. Literal addresses are checked before the request, and others after the
//! lookup. The connection uses the checked addresses, so a later change of the DNS records has no effect.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, LazyLock};

use ipnet::{IpNet, Ipv6Net};
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

/// The ranges that are not public, with their names. Other IPv6 addresses outside of `2000::/3` are closed too.
static CLOSED: LazyLock<Vec<(IpNet, &str)>> = LazyLock::new(|| {
    let rows = include_str!("guard/closed.txt").lines().filter(|row| !row.starts_with('#'));
    let row = |row: &'static str| {
        let (range, name) = row.split_once(' ')?;
        Some((range.parse::<IpNet>().ok()?, name))
    };
    rows.map(row).collect::<Option<_>>().expect("each row has a range and its name")
});

const NAT64: IpNet = IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96));
const GLOBAL_UNICAST: IpNet = IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3));

impl Policy {
    /// Allows public addresses.
    pub fn public() -> Self {
        Self::default()
    }

    /// Also allows loopback, for local mode.
    pub fn with_loopback() -> Self {
        Self::public().and_networks("127.0.0.0/8, ::1/128").expect("each entry is a network")
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
