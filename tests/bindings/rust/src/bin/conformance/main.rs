//! Runs the cases of bindings/conformance/cases.json through the safe interface.
//!
//! usage: conformance REPOSITORY [WORDS...]     with WORDS, only the cases whose names have one of them
//!        conformance --leave CALLS             leaves main with so many calls open
mod life;
mod local;
mod workers;

use distag_tests::json::Json;
use std::collections::HashMap;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// A case: its inputs and expected numbers in, a panic where something is otherwise.
pub type Case = (&'static str, fn(&Json));

pub fn read(repository: &str, path: &str) -> String {
    let path = format!("{repository}/{path}");
    std::fs::read_to_string(&path).unwrap_or_else(|failure| panic!("{path}: {failure}"))
}

/// The lines of a file of reference numbers.
pub fn lines(given: &Json) -> Vec<Json> {
    let text = read(&given.text("repository"), &given.text("file"));
    if text.starts_with('[') {
        return Json::parse(&text).list().to_vec();
    }
    text.lines().map(Json::parse).collect()
}

fn run(number: usize, name: &str, case: fn(&Json), given: &Json) -> bool {
    let is_ok = catch_unwind(AssertUnwindSafe(|| case(given))).is_ok();
    println!("{} {number} - {name}", if is_ok { "ok" } else { "not ok" });
    is_ok
}

fn main() {
    let arguments = std::env::args().collect::<Vec<_>>();
    match arguments.get(1).map(String::as_str) {
        None => panic!("usage: conformance REPOSITORY [WORDS...]"),
        Some("--leave") => return life::leave_with_calls_open(arguments[2].parse().expect("a number of calls")),
        Some("--child") => return life::in_child(),
        _ => {}
    }
    let words = &arguments[2..];
    let table = [local::cases(), workers::cases(), life::cases()].concat().into_iter().collect::<HashMap<_, _>>();
    let file = Json::parse(&read(&arguments[1], "bindings/conformance/cases.json"));
    let (mut number, mut passed) = (0, 0);
    for given in file.get("cases").list() {
        let name = given.text("name");
        let is_wanted = words.is_empty() || words.iter().any(|word| name.contains(word));
        let mut given = given.clone();
        if let Json::Map(entries) = &mut given {
            entries.insert("repository".to_owned(), Json::Text(arguments[1].clone()));
        }
        if let (true, Some(&case)) = (is_wanted, table.get(name.as_str())) {
            number += 1;
            passed += usize::from(run(number, &name, case, &given));
        }
    }
    println!("1..{number}");
    std::process::exit(i32::from(passed != number));
}
