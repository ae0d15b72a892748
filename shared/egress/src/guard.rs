//! The policy for outbound requests. Without it, a URL in a document could refer to our own network: the metadata
//! service of the cloud, a database without a password, or another service on loopback.
//!
//! The policy checks addresses. A name can only allow private addresses. Literal addresses are checked before the request,
//! and others after the lookup. The connection uses the checked addresses, so a later change of the DNS records has no effect.

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
    /// What an operator allows of private networks. `None` if the setting does not apply, as for relays.
    receivers: Option<PrivateReceivers>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PrivateReceivers {
    networks: Vec<IpNet>,
    /// Host names in lower case. One that begins with a full stop stands for all names that end with it.
    names: Vec<String>,
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
    #[error("the address {address} is not allowed: {range}{advice}")]
    Address { address: IpAddr, range: &'static str, advice: &'static str },
    /// The name in the URL has no allowed address.
    #[error("the name {name} resolves to {address}, which is not allowed: {range}{advice}")]
    Name { name: String, address: IpAddr, range: &'static str, advice: &'static str },
}

/// The end of a refusal that an operator can change.
const ADVICE: &str = "; an operator of this deployment can allow it with EBB_EGRESS_NETWORKS (on AWS the parameter \
                      EgressNetworks)";
/// The end of the error of a name that only the pods of a Kubernetes cluster resolve.
const IN_CLUSTER: &str = "; only a cluster knows such a name: add `cluster: NAME` to the unit, so that its relay sends the \
                          request, or give the Service an address that the control plane reaches";
const EXPECTED: &str = "expected host names, and parts of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10 or \
                        fc00::/7";

/// A range that is not public.
struct ClosedRange {
    range: IpNet,
    name: &'static str,
    /// True if an operator can allow its addresses.
    is_private: bool,
}

/// The ranges that are not public. Other IPv6 addresses outside of `2000::/3` are closed too.
static CLOSED: LazyLock<Vec<ClosedRange>> = LazyLock::new(|| {
    let rows = include_str!("guard/closed.txt").lines().filter(|row| !row.starts_with('#'));
    let row = |row: &'static str| {
        let (range, name) = row.split_once(' ')?;
        let private = range.strip_prefix('+');
        Some(ClosedRange { range: private.unwrap_or(range).parse().ok()?, name, is_private: private.is_some() })
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

    /// Allows receivers in private networks: a comma-separated list such as `10.1.0.0/16, hooks.internal, *.svc.internal`. A
    /// network or an address allows its addresses. A name allows the private addresses to which it resolves, and `*.` all
    /// names below a name. All other closed addresses stay closed, also inside of a network: metadata services of clouds.
    ///
    /// # Errors
    /// Returns the first entry that is neither a part of one private network nor a host name.
    pub fn and_receivers(mut self, list: &str) -> Result<Self, String> {
        let receivers = self.receivers.get_or_insert_default();
        for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            if let Ok(network) = entry.parse::<IpNet>().or_else(|_| entry.parse::<IpAddr>().map(IpNet::from)) {
                match CLOSED.iter().find(|row| row.range.contains(&network)) {
                    Some(row) if row.is_private => receivers.networks.push(network),
                    row => {
                        let why = row.map_or("not a part of one private network", |row| row.name);
                        return Err(format!("{entry} cannot be allowed ({why}): {EXPECTED}"));
                    }
                }
            } else {
                let name = host_name(entry.strip_prefix("*.").unwrap_or(entry));
                let name = name.ok_or_else(|| format!("{entry:?} is neither a network nor a host name: {EXPECTED}"))?;
                receivers.names.push(if entry.starts_with("*.") { format!(".{name}") } else { name });
            }
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
            Some(Host::Ipv4(address)) => self.check_address(address.into(), None)?,
            Some(Host::Ipv6(address)) => self.check_address(address.into(), None)?,
            Some(Host::Domain(_)) => {}
        }
        Ok(url)
    }

    /// Checks an address, which can be that of the host `name`.
    pub(crate) fn check_address(&self, address: IpAddr, name: Option<&str>) -> Result<(), PolicyViolation> {
        let destination = destination(address);
        let is_allowed = |range: &IpNet| range.contains(&address) || range.contains(&destination);
        let closed = closed(destination).filter(|_| !self.allow.iter().any(is_allowed));
        let Some((range, is_private)) = closed else { return Ok(()) };
        let receivers = self.receivers.as_ref().filter(|_| is_private);
        if receivers.is_some_and(|receivers| receivers.allow(destination, name)) {
            return Ok(());
        }
        Err(PolicyViolation::Address { address, range, advice: receivers.map_or("", |_| ADVICE) })
    }
}

impl PrivateReceivers {
    fn allow(&self, address: IpAddr, name: Option<&str>) -> bool {
        let name = name.map(|name| name.trim_end_matches('.'));
        let is_of = |known: &String| match (name, known.starts_with('.')) {
            (Some(name), true) => name.ends_with(known.as_str()),
            (name, _) => name == Some(known.as_str()),
        };
        self.networks.iter().any(|network| network.contains(&address)) || self.names.iter().any(is_of)
    }
}

/// Returns a host name as URLs have it, without a full stop at its end.
fn host_name(text: &str) -> Option<String> {
    let Ok(Host::Domain(name)) = Host::parse(text) else { return None };
    let name = name.trim_end_matches('.');
    (!name.is_empty() && !name.contains('*')).then(|| name.to_owned())
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

/// Returns the name of the closed range of an address, and whether an operator can allow it.
fn closed(address: IpAddr) -> Option<(&'static str, bool)> {
    let row = CLOSED.iter().find(|row| row.range.contains(&address)).map(|row| (row.name, row.is_private));
    let is_global = address.is_ipv4() || GLOBAL_UNICAST.contains(&address);
    row.or(if is_global { None } else { Some(("not global unicast", false)) })
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
        let is_local = [".svc", ".cluster.local"].iter().any(|end| text.trim_end_matches('.').ends_with(end));
        let advice = if is_local { IN_CLUSTER } else { "" };
        Box::pin(async move {
            let mut refused = None;
            let mut open = Vec::new();
            let found = resolving.await;
            for address in found.map_err(|error| if is_local { format!("{error}{advice}").into() } else { error })? {
                match policy.check_address(address.ip(), Some(&text)) {
                    Ok(()) => open.push(address),
                    Err(refusal) => refused = Some(refusal),
                }
            }
            match refused {
                Some(PolicyViolation::Address { address, range, advice }) if open.is_empty() => {
                    Err(PolicyViolation::Name { name: text, address, range, advice }.into())
                }
                _ if open.is_empty() => Err(format!("the name {text} has no address{advice}").into()),
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
