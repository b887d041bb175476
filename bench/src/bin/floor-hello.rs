//! The least program there is: what does starting any Rust binary cost?

#![expect(clippy::print_stdout, reason = "printing one line is all it does")]

fn main() {
    println!("hello");
}
