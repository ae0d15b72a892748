//! The addresses of a cluster.

/// How many clusters a machine can have at once.
pub(crate) const NUMBERS: u8 = 16;

/// The block 10.(232 + number).0.0/16. The cluster's end of a link to the machine is the node; the machine's end is where
/// pods reach the machine; and the machine reaches pods and services through the node.
#[derive(Clone, Copy)]
pub(crate) struct ClusterNetwork {
    pub(crate) number: u8,
}

impl ClusterNetwork {
    /// The name of the machine's end of the link, of the control groups and of what else shows on the machine.
    pub(crate) fn name(self) -> String {
        format!("ebbc{}", self.number)
    }

    fn within(self, rest: &str) -> String {
        format!("10.{}.{rest}", 232 + u16::from(self.number))
    }

    /// All of its addresses.
    pub(crate) fn block(self) -> String {
        self.within("0.0/16")
    }

    /// The machine's address on the link.
    pub(crate) fn host(self) -> String {
        self.within("0.1")
    }

    /// The node's address on the link.
    pub(crate) fn node(self) -> String {
        self.within("0.2")
    }

    /// The addresses of services.
    pub(crate) fn services(self) -> String {
        self.within("64.0/18")
    }

    /// The service `kubernetes`: the first of them.
    pub(crate) fn api(self) -> String {
        self.within("64.1")
    }

    /// The addresses of pods.
    pub(crate) fn pods(self) -> String {
        self.within("128.0/17")
    }
}
