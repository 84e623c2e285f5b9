//! What each worker does beside serving clients, within an allowance of its time:
//! expiring, packing, and one thread that trains.

pub(crate) mod allowance;
pub(crate) mod cooler;
pub(crate) mod packer;
pub(crate) mod room;
pub(crate) mod sweeper;
pub(crate) mod tierer;
pub(crate) mod trainer;
