//! What every engine is held to.
#![allow(missing_docs)]

contexture_testkit::conforms!(contexture_lcm::DEFINITION);
