//! The lease of a relay. Of the relays in a namespace, the one with the lease works, and the others wait for it.
//!
//! The Lease names the pod of the relay that works. That relay renews it every 5 s, and ends if it could not for 10 s.
//! Another one takes a lease that has not changed for 15 s of its own steady clock, so no clocks are compared. A container
//! that was restarted takes the lease of its pod at once, because the kubelet starts it after the end of the former one.
//!
//! The lease only saves double work. Every write of a record is conditional, so records are correct without it.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::time::{Instant, sleep};

use crate::error::{Result, within};
use crate::lock;

const NAME: &str = "ebb-relay";
const RENEWAL: Duration = Duration::from_secs(5);
const REQUEST: Duration = Duration::from_secs(3);
/// The time after the last renewal at which the holder ends, or one request later.
const LIMIT: Duration = Duration::from_secs(10);
const VALID: Duration = Duration::from_secs(15);
/// The pause between two looks at the lease of another relay, and after a failed renewal.
const LOOK: Duration = Duration::from_secs(1);

/// The address of the relay with the lease. Absent until the lease was read, and while another relay is about to take it.
pub type LeaderAddress = Arc<Mutex<Option<IpAddr>>>;

/// The lease, in the hands of this relay.
pub struct RelayLease {
    leases: Api<Lease>,
    pod: String,
    leader: LeaderAddress,
    /// The lease as it was last read or written.
    lease: Lease,
    /// The time since which it has this version.
    since: Instant,
    renewed: Instant,
}

impl RelayLease {
    /// Waits for the lease in a namespace and takes it, for a relay in the pod `NAME/ADDRESS`.
    pub async fn taken(client: &Client, namespace: &str, pod: &str, leader: LeaderAddress) -> Self {
        let (mut own, mut said) = (Self::new(client, namespace, pod, leader), String::new());
        loop {
            let state = match within(REQUEST, own.take()).await {
                Ok(true) => return own,
                Ok(false) => format!("this relay waits for the one in {}", own.holder().unwrap_or_default()),
                Err(error) => format!("this relay cannot take its lease: {error}"),
            };
            if state != said {
                tracing::info!("{state}");
                said = state;
            }
            sleep(LOOK).await;
        }
    }

    fn new(client: &Client, namespace: &str, pod: &str, leader: LeaderAddress) -> Self {
        let (leases, now) = (Api::namespaced(client.clone(), namespace), Instant::now());
        Self { leases, pod: pod.to_owned(), leader, lease: Lease::default(), since: now, renewed: now }
    }

    /// Renews the lease. Returns why this relay has to end.
    pub async fn kept(&mut self) -> String {
        loop {
            let pause = match within(REQUEST, self.take()).await {
                Ok(true) => RENEWAL,
                Ok(false) => return "another relay has taken the lease".to_owned(),
                Err(error) if self.renewed.elapsed() >= LIMIT => {
                    return format!("the lease was not renewed for {} s: {error}", LIMIT.as_secs());
                }
                Err(_) => LOOK,
            };
            sleep(pause).await;
        }
    }

    /// Gives the lease up, so that another relay takes it at once.
    pub async fn given_up(mut self) {
        if self.holder() == Some(self.pod.as_str())
            && let Err(error) = within(REQUEST, self.write(None)).await
        {
            tracing::warn!(%error, "the lease could not be given up; it ends after 15 s");
        }
    }

    fn holder(&self) -> Option<&str> {
        self.lease.spec.as_ref()?.holder_identity.as_deref()
    }

    /// Takes or renews the lease. Returns false if another relay has it.
    async fn take(&mut self) -> Result<bool> {
        let begun = Instant::now();
        let found = self.leases.get_opt(NAME).await?.unwrap_or_default();
        if found.metadata.resource_version != self.lease.metadata.resource_version {
            self.since = Instant::now();
        }
        self.lease = found;
        let other = self.holder().filter(|holder| *holder != self.pod);
        *lock(&self.leader) = other.and_then(address);
        if other.is_some() && self.since.elapsed() < VALID {
            return Ok(false);
        }
        self.write(Some(self.pod.clone())).await?;
        self.renewed = begun;
        *lock(&self.leader) = address(&self.pod);
        Ok(true)
    }

    /// Writes the holder, on condition that the lease is as it was read.
    async fn write(&mut self, holder: Option<String>) -> Result<()> {
        self.lease.metadata.name = Some(NAME.to_owned());
        self.lease.spec = Some(LeaseSpec {
            holder_identity: holder,
            lease_duration_seconds: i32::try_from(VALID.as_secs()).ok(),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        });
        self.lease = match self.lease.metadata.resource_version {
            None => self.leases.create(&PostParams::default(), &self.lease).await?,
            Some(_) => self.leases.replace(NAME, &PostParams::default(), &self.lease).await?,
        };
        Ok(())
    }
}

/// Returns the address of a pod `NAME/ADDRESS`.
fn address(pod: &str) -> Option<IpAddr> {
    pod.rsplit_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_api::TestApi;

    #[tokio::test]
    async fn a_lease_is_taken_from_a_relay_that_has_ended_only() {
        let client = Arc::new(TestApi::default()).client();
        let lease = |pod: &str| RelayLease::new(&client, "relay", pod, LeaderAddress::default());
        let (mut first, mut second) = (lease("a/10.0.0.1"), lease("b/10.0.0.2"));
        assert!(first.take().await.unwrap() && !second.take().await.unwrap());
        assert_eq!(*lock(&second.leader), address("b/10.0.0.1"));
        second.since = second.since.checked_sub(VALID).unwrap();
        assert!(first.take().await.unwrap() && !second.take().await.unwrap(), "it was renewed");
        second.since = second.since.checked_sub(VALID).unwrap();
        assert!(second.take().await.unwrap() && !first.take().await.unwrap());
        // The container of the second relay is restarted.
        let mut restarted = lease("b/10.0.0.2");
        assert!(restarted.take().await.unwrap());
        first.given_up().await;
        assert!(!lease("c/10.0.0.3").take().await.unwrap(), "it is the lease of another relay");
        restarted.given_up().await;
        assert!(lease("c/10.0.0.3").take().await.unwrap());
    }
}
