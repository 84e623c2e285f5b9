//! What packing is made of, whatever is packed.

pub(crate) mod dictionaries;
pub(crate) mod identity;
pub(crate) mod saving;
