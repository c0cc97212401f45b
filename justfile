# The common tasks; `just` lists them. CONTRIBUTING.md explains the tests.

# list the tasks
default:
    @just --list --unsorted

# check one package quickly: just check contexture-lcm
check package:
    cargo clippy -p {{package}} --all-targets --locked -- -D warnings

# test one package, or a part of it: just test contexture-lcm --test search
test package *rest:
    PROPTEST_RNG_SEED=1 cargo test -p {{package}} --locked {{rest}}

# everything that a change has to pass
ci:
    .ci/run

# the long tests and all benchmarks: hours
long:
    .ci/long

# the crates as they are published, each built from its package
package:
    .ci/package

# the archive of a release for this machine, in target/archives
archive:
    .ci/archive

# format everything
fmt:
    cargo fmt --all

# the pages as a site, in target/book
site:
    mdbook build

# the API documentation of the crates that others use
doc:
    cargo doc --no-deps -p contexture -p contexture-engine-api -p contexture-testkit --open

# the table in BENCHMARKS.md and the chart in the README; needs ../shared/data
figures:
    cargo bench -p contexture-tests --bench replay_table -- write
    cargo bench -p contexture-tests --bench replay_table -- chart

# what changed for users of the public interfaces since a revision: just semver origin/main
semver since:
    cargo semver-checks --baseline-rev {{since}} -p contexture-engine-api -p contexture

# feed the readers of wire formats with random input
fuzz:
    cd host/formats && cargo +nightly fuzz run formats_read
