//! An agent in a loop pays no more with an engine than without, as long as its conversation fits the window, and is not
//! compacted again and again. The whole grid: `cargo bench -p contexture-tests --bench agent_loops`.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use contexture_tests::agent_loops::Loop;
use contexture_tests::{Home, engines};
use contexture_tiered as _;
use contexture_two_layer as _;
use contexture_virtual_files as _;

/// Result, window, usage, requests.
const LOOPS: [(usize, u64, f64, usize); 6] = [
    // Large results, whose protected messages alone reach the trigger.
    (5_900, 128_000, 1.0, 45),
    (10_000, 64_000, 1.25, 30),
    // Small ones, with a provider that counts more.
    (500, 32_000, 1.25, 40),
    (2_000, 64_000, 1.0, 45),
    // They fit, and the threshold is reached shortly before the end.
    (500, 64_000, 1.0, 57),
    (2_000, 200_000, 1.25, 45),
];

#[test]
fn no_engine_compacts_again_and_again_or_costs_more_than_none() {
    let mut faults = Vec::new();
    for (result, window, usage, turns) in LOOPS {
        for engine in ["compressor", "lcm", "tiered", "two-layer", "virtual-files"] {
            let played = Loop {
                engine,
                result,
                window,
                usage,
                turns,
            };
            let came = played.play(&engines(&Home::new()));
            if let Some(fault) = came.fault(&played) {
                faults.push(format!("{played:?}: {fault}; {:?}", came.compactions));
            }
            // What does not fit has to be compacted, and that is cheaper as well.
            if !came.fits && matches!(engine, "compressor" | "lcm") {
                assert!(!came.compactions.is_empty(), "{played:?}");
                assert!(came.cost <= 1.0, "{played:?}: {}", came.cost);
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
