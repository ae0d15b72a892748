//! What each function may do is what it does: nothing less, or it fails on AWS, and nothing more.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::functions::FUNCTIONS;
use crate::record::PolicyRights;
use crate::run;
use crate::template::{allowed, statements, template};

/// Rights that no run shows, or not every run, of which function (all: ``), and why they are there.
const WAIVED: [(&str, &str, &str, &str); 20] = [
    ("", "secretsmanager:GetSecretValue", "SecretArn", "the secret is read before there are clients that record"),
    ("", "logs:CreateLogStream", "LOG", "Lambda writes what a function prints"),
    ("", "logs:PutLogEvents", "LOG", "Lambda writes what a function prints"),
    ("Sweep", "sqs:ReceiveMessage", "WakeupQueue", "Lambda takes messages from the queue for it"),
    ("Sweep", "sqs:DeleteMessage", "WakeupQueue", "Lambda takes messages from the queue for it"),
    ("Sweep", "sqs:GetQueueAttributes", "WakeupQueue", "Lambda takes messages from the queue for it"),
    ("Sweep", "sqs:SendMessage", "ScheduleDeadLetterQueue", "Lambda leaves word of what it could not deal with"),
    ("Api", "s3:ListBucket", "Bucket", "without it a log that is not there would be said to be forbidden"),
    ("Api", "s3:PutObject", "Bucket logs/*", "a script that it cancels may have ended, with a log"),
    ("Api", "s3:PutObject", "Bucket outputs/*", "a unit that it sends again may answer at once, at length"),
    ("Api", "dynamodb:PutItem", "Table r#*", "what it overrides may let a run begin"),
    ("Complete", "s3:GetObject", "Bucket outputs/*", "it renders what waited for long outputs, if no other does"),
    (
        "Receive",
        "s3:DeleteObject",
        "Bucket plans/*",
        "another event may take the name before an instance with a large plan",
    ),
    ("Sweep", "dynamodb:GetItem", "Table retention#*", "an expiry that cannot be read is postponed"),
    ("Sweep", "dynamodb:GetItem", "Table x#*", "the name of an instance that it removes may be another's"),
    (
        "Complete",
        "dynamodb:PutItem",
        "Table retention#*",
        "another instance may wait for the name of an instance that it ends",
    ),
    (
        "Api",
        "dynamodb:PutItem",
        "Table retention#*",
        "another instance may wait for the name of an instance that it ends",
    ),
    ("Complete", "dynamodb:PutItem", "Table x#*", "another instance may wait for the name of an instance that it ends"),
    ("Api", "dynamodb:PutItem", "Table x#*", "another instance may wait for the name of an instance that it ends"),
    ("Sweep", "s3:PutObject", "Bucket logs/*", "it may be the one that learns how a script ended"),
];

/// What is needed by a run, or waived, and not allowed, and the other way round: a line for each.
fn differences(template: &Value, needed: &BTreeMap<&str, PolicyRights>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for function in FUNCTIONS {
        let allowed = allowed(template, function);
        let waived = WAIVED.iter().filter(|(of, ..)| of.is_empty() || *of == function);
        let waived =
            waived.map(|(_, action, place, _)| ((*action).to_owned(), place.replace("LOG", &format!("{function}Log"))));
        let waived: PolicyRights = waived.collect();
        let mut add = |what: &str, rights: &mut dyn Iterator<Item = &(String, String)>| {
            found.extend(rights.map(|(action, place)| format!("{function} {what}: {action} {place}")));
        };
        add("needs", &mut needed[function].difference(&allowed));
        let in_vain = waived.difference(&allowed).filter(|right| !needed[function].contains(*right));
        add("has a waiver for what it may not do", &mut { in_vain });
        add(
            "may do and never does",
            &mut allowed.iter().filter(|right| !needed[function].contains(*right) && !waived.contains(*right)),
        );
    }
    found
}

/// The template as it is fits, and with any one statement less the comparison names all that the statement allows.
#[tokio::test(flavor = "multi_thread")]
async fn each_function_may_do_what_it_does() {
    let (template, functions) = (template(), run::all().await);
    let needed = functions.needed();
    let found = differences(&template, &needed);
    assert!(found.is_empty(), "{found:#?}");
    let mut cuts = 0;
    for function in FUNCTIONS {
        let whole = allowed(&template, function);
        for index in 0..statements(&mut template.clone(), function).len() {
            let mut cut = template.clone();
            let statement = statements(&mut cut, function).remove(index);
            let lost: Vec<_> = whole.difference(&allowed(&cut, function)).cloned().collect();
            assert!(!lost.is_empty(), "{function}: {statement}");
            let found = differences(&cut, &needed);
            assert_eq!(found.len(), lost.len(), "{found:#?}");
            for (action, place) in lost {
                let named = |what: &str| found.contains(&format!("{function} {what}: {action} {place}"));
                let named = named("needs") || named("has a waiver for what it may not do");
                assert!(named, "{function} without {statement}: {found:#?}");
            }
            cuts += 1;
        }
    }
    assert!(cuts > 40, "{cuts} statements");
}
