//! Small graphs, with a fault at every numbered write.
