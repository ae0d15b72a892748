//! What each function may do is what it does: nothing less, or it fails on AWS, and nothing more.

use std::fmt::Write as _;

use crate::record::Rights;
use crate::run;
use crate::template::{FUNCTIONS, allowed, template};

/// Rights that no run shows, of which function (all: ``), and why they are there.
const WAIVED: [(&str, &str, &str, &str); 18] = [
    ("", "secretsmanager:GetSecretValue", "Secrets", "the secret is read before a function runs"),
    ("", "logs:CreateLogStream", "LOG", "Lambda writes what a function prints"),
    ("", "logs:PutLogEvents", "LOG", "Lambda writes what a function prints"),
    ("Sweep", "sqs:ReceiveMessage", "Wakeups", "Lambda takes messages from the queue for it"),
    ("Sweep", "sqs:DeleteMessage", "Wakeups", "Lambda takes messages from the queue for it"),
    ("Sweep", "sqs:GetQueueAttributes", "Wakeups", "Lambda takes messages from the queue for it"),
    ("Sweep", "sqs:SendMessage", "DeadEvents", "Lambda leaves word of what it could not deal with"),
    ("Api", "s3:ListBucket", "Bucket", "without it a log that is not there would be said to be forbidden"),
    ("Receive", "dynamodb:GetItem", "Table p#*", "a plan that another instance has made"),
    ("Receive", "s3:GetObject", "Bucket plans/*", "a plan that another instance has made"),
    ("Receive", "s3:PutObject", "Bucket outputs/*", "a unit may answer at once, at length"),
    ("Sweep", "s3:PutObject", "Bucket outputs/*", "a unit may answer at once, at length"),
    ("Api", "s3:PutObject", "Bucket outputs/*", "a unit that it sends again may answer at once, at length"),
    ("Api", "s3:PutObject", "Bucket logs/*", "a unit that it sends again may have ended, with a log"),
    ("Api", "dynamodb:PutItem", "Table r#*", "what it waives may let a run begin"),
    ("Complete", "s3:PutObject", "Bucket mail/*", "a script that it sends is a long letter"),
    ("Complete", "s3:GetObject", "Bucket mail/*", "a relay may answer at length"),
    ("Complete", "s3:DeleteObject", "Bucket mail/*", "it takes long letters back"),
];

fn list(function: &str, what: &str, rights: &Rights, told: &mut String) {
    for (action, place) in rights {
        writeln!(told, "{function}: {what}: {action} {place}").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_function_may_do_what_it_does() {
    let (template, functions) = (template(), run::all().await);
    let mut told = String::new();
    for function in FUNCTIONS {
        let mut allowed = allowed(&template, function);
        let needed = functions.needed(function);
        list(function, "needs", &needed.difference(&allowed).cloned().collect(), &mut told);
        allowed.retain(|right| !needed.contains(right));
        for (of, action, place, _) in WAIVED {
            if of.is_empty() || of == function {
                let right = (action.to_owned(), place.replace("LOG", &format!("{function}Log")));
                if !allowed.remove(&right) {
                    writeln!(told, "{function}: waived in vain: {action} {place}").unwrap();
                }
            }
        }
        list(function, "may do and never does", &allowed, &mut told);
    }
    assert!(told.is_empty(), "{told}");
}
