//! The providers' own Python clients.
#![allow(missing_docs)]

use contexture_real::official_clients;
use contexture_stand_in::{Options, StandIn};

#[test]
#[cfg_attr(not(installed_clients), ignore = "needs `tests/real/install clients`")]
fn the_official_clients_understand_every_answer() {
    for piece in [0, 5] {
        let options = Options {
            piece,
            ..Options::default()
        };
        let provider = StandIn::with(options);
        official_clients(&provider, &provider.base_url());
    }
}
