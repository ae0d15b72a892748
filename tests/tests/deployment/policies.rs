//! Compares the policy of each function with the requests that it makes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::functions::FUNCTIONS;
use crate::record::PolicyRights;
use crate::run;
use crate::template::{allowed, statements, template};

/// Rights that not every run needs: function (empty for all), action, place and reason.
const WAIVED: [(&str, &str, &str, &str); 21] = [
    ("", "secretsmanager:GetSecretValue", "SecretArn", "the secret is read before there are clients that record"),
    ("", "logs:CreateLogStream", "LOG", "Lambda writes what a function prints"),
    ("", "logs:PutLogEvents", "LOG", "Lambda writes what a function prints"),
    ("Sweep", "sqs:ReceiveMessage", "WakeupQueue", "Lambda reads the queue for the function"),
    ("Sweep", "sqs:DeleteMessage", "WakeupQueue", "Lambda reads the queue for the function"),
    ("Sweep", "sqs:GetQueueAttributes", "WakeupQueue", "Lambda reads the queue for the function"),
    ("Sweep", "sqs:SendMessage", "ScheduleDeadLetterQueue", "Lambda sends failed invocations to it"),
    ("Api", "s3:ListBucket", "Bucket", "without it, a missing log results in 403 instead of 404"),
    ("Api", "s3:PutObject", "Bucket logs/*", "a cancelled script may have ended with a log"),
    ("Api", "s3:PutObject", "Bucket outputs/*", "a repeated unit may succeed at once with a long output"),
    ("Api", "dynamodb:PutItem", "Table r#*", "an override may start a run"),
    ("Complete", "s3:GetObject", "Bucket outputs/*", "another function may render units that read long outputs"),
    ("Receive", "s3:DeleteObject", "Bucket plans/*", "an event may take the name of an instance with a large plan"),
    ("Sweep", "dynamodb:GetItem", "Table retention#*", "an expiry that cannot be read is postponed"),
    ("Sweep", "dynamodb:GetItem", "Table x#*", "another instance may have the name of a removed one"),
    ("Complete", "s3:DeleteObject", "Bucket plans/*", "an event may change a target whose update has a large plan"),
    ("Api", "dynamodb:PutItem", "Table x#*", "without a platform, an override may begin the instance that waits"),
    ("Api", "dynamodb:PutItem", "Table p#*", "an update may wait for the run of that instance"),
    ("Api", "s3:PutObject", "Bucket plans/*", "the plan of that update may be large"),
    ("Api", "s3:DeleteObject", "Bucket plans/*", "a concurrent event may change the target of that update"),
    ("Sweep", "s3:PutObject", "Bucket logs/*", "it may read the end of a script"),
];

/// Returns a line for each right that is needed but not allowed, or allowed but neither needed nor waived.
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
        let unused = waived.difference(&allowed).filter(|right| !needed[function].contains(*right));
        add("has a waiver without a right", &mut { unused });
        add(
            "has a right without a need",
            &mut allowed.iter().filter(|right| !needed[function].contains(*right) && !waived.contains(*right)),
        );
    }
    found
}

/// The template has no differences. Without any one statement, the comparison finds all rights of the statement.
#[tokio::test(flavor = "multi_thread")]
async fn policies_match_the_requests_of_functions() {
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
                let named = named("needs") || named("has a waiver without a right");
                assert!(named, "{function} without {statement}: {found:#?}");
            }
            cuts += 1;
        }
    }
    assert!(cuts > 40, "{cuts} statements");
}
