//! Load, decide, write, dispatch: the bodies of the functions as plain async fns.

pub mod ports;
