//! The addresses of a cluster.

/// The most clusters per machine.
pub(crate) const NUMBERS: u8 = 16;

/// The block 10.(232 + number).0.0/16 of a cluster.
///
/// A link connects node and machine. Pods reach the machine at its end of the link. The machine reaches pods and
/// services through the node.
#[derive(Clone, Copy)]
pub(crate) struct ClusterNetwork {
    pub(crate) number: u8,
}

impl ClusterNetwork {
    /// Returns the name of the link on the machine and of the control groups.
    pub(crate) fn name(self) -> String {
        format!("ebbc{}", self.number)
    }

    fn within(self, rest: &str) -> String {
        format!("10.{}.{rest}", 232 + u16::from(self.number))
    }

    pub(crate) fn block(self) -> String {
        self.within("0.0/16")
    }

    /// Returns the machine's address on the link.
    pub(crate) fn host(self) -> String {
        self.within("0.1")
    }

    /// Returns the node's address on the link.
    pub(crate) fn node(self) -> String {
        self.within("0.2")
    }

    pub(crate) fn services(self) -> String {
        self.within("64.0/18")
    }

    /// Returns the address of the service `kubernetes`, the first of all services.
    pub(crate) fn api(self) -> String {
        self.within("64.1")
    }

    pub(crate) fn pods(self) -> String {
        self.within("128.0/17")
    }
}
