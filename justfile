# Aliases for fingers. Everything is `cargo` or `cargo xtask`.

default:
    @just --list

check:
    cargo clippy --workspace --all-targets -- -D warnings
test *args:
    cargo test --workspace {{ args }}
fmt:
    cargo fmt --all
tidy:
    cargo xtask tidy
ci *steps:
    cargo xtask ci {{ steps }}
interop:
    cargo xtask interop
bench *args:
    cargo xtask bench {{ args }}
demo:
    cargo run -- demo
