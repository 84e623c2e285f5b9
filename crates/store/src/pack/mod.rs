//! What packing is made of, whatever is packed.

pub(crate) mod identity;
