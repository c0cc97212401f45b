//! What an engine is known by, and the registry of engines linked into a process.
