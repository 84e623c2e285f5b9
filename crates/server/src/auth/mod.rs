//! Accounts: who may do what.

mod categories;

pub(crate) use categories::Categories;

#[allow(dead_code)]
/// What is wanted of a key, or allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub read: bool,
    pub write: bool,
}
