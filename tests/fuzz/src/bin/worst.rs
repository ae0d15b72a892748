//! Prints the steps and the time that compiling each of the worst documents takes.
#![allow(clippy::print_stdout, reason = "it is what it is for")]

use std::rc::Rc;
use std::time::Instant;

use ebb_spec::expr::WorkBudget;

fn main() {
    for case in ebb_fuzz::worst::cases() {
        let budget = Rc::new(WorkBudget::default());
        let began = Instant::now();
        let made = case.compile(&budget);
        let took = began.elapsed().as_millis();
        let end = match made {
            Ok(units) => format!("{units} units"),
            Err(errors) => {
                format!("{} errors, {}", errors.len(), errors.iter().next().map_or("", |e| e.code))
            }
        };
        println!("{:<34} {:>10} steps {took:>6} ms, {end}", case.name, budget.spent());
    }
}
