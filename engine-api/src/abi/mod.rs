//! The stable ABI: the only place that names `abi_stable`.

pub(crate) mod view;
