//! What packing is made of, whatever is packed.

pub(crate) mod dictionaries;
pub mod families;
pub(crate) mod form;
pub(crate) mod identity;
pub(crate) mod keys;
pub(crate) mod piece;
pub(crate) mod recipe;
pub(crate) mod recurring;
pub(crate) mod saving;
