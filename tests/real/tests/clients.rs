//! The providers' own Python clients.
#![allow(missing_docs)]

use contexture_real::official_clients;

#[test]
#[cfg_attr(not(installed_clients), ignore = "needs `tests/real/install clients`")]
fn the_official_clients_understand_every_answer() {
    official_clients(|provider, ask| ask(&provider.base_url()));
}
