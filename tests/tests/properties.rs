//! What holds of every plan and every schedule.

fn main() {}
