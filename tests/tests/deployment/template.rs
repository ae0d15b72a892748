//! Checks `template.yaml`. It is read without its tags: `!Ref A` is `A`, `!GetAtt A.Arn` is `A.Arn`.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::config::BehaviorVersion;
use aws_sdk_dynamodb::types::KeySchemaElement;
use aws_sdk_dynamodb::{Client, Config};
use ebb_store::TableSpec;
use serde_json::{Value, json};

use super::functions::FUNCTIONS;
use super::record::PolicyRights;
use crate::tree;

/// The value of a property whose condition is false.
const NO_VALUE: &str = "AWS::NoValue";

pub(crate) fn template() -> Value {
    serde_saphyr::from_str(&tree::read("template.yaml")).unwrap()
}

fn properties<'a>(template: &'a Value, resource: &str) -> &'a Value {
    let found = &template["Resources"][resource]["Properties"];
    assert!(found.is_object(), "{resource} is not in the template");
    found
}

/// Returns the texts of a list. A single text is a list of one.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(all) => all.iter().map(|one| one.as_str().unwrap()).collect(),
        one => vec![one.as_str().unwrap_or_else(|| panic!("{one}"))],
    }
}

/// Returns the statements of the role of a function, which has one policy.
pub(crate) fn statements<'a>(template: &'a mut Value, function: &str) -> &'a mut Vec<Value> {
    let role = &mut template["Resources"][format!("{function}Role")]["Properties"];
    role["Policies"][0]["PolicyDocument"]["Statement"].as_array_mut().unwrap()
}

/// Returns the rights of the role of a function, one for each action and place. Fails on an unknown form of statement.
pub(crate) fn allowed(template: &Value, function: &str) -> PolicyRights {
    let role = properties(template, &format!("{function}Role"));
    assert_eq!(properties(template, function)["Role"], format!("{function}Role.Arn"));
    assert_eq!(properties(template, function)["Policies"], Value::Null, "{function}");
    assert_eq!(role["ManagedPolicyArns"], json!(["InNetwork", ["VpcAccessPolicy"], NO_VALUE]), "{function}");
    let mut rights = PolicyRights::new();
    for statement in role["Policies"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|policy| policy["PolicyDocument"]["Statement"].as_array().unwrap())
    {
        let keys: Vec<&str> = statement.as_object().unwrap().keys().map(String::as_str).collect();
        assert!(keys.iter().all(|key| ["Effect", "Action", "Resource", "Condition"].contains(key)), "{keys:?}");
        assert_eq!(statement["Effect"], "Allow");
        for action in texts(&statement["Action"]) {
            for place in places(statement) {
                let new = rights.insert((action.to_owned(), place.clone()));
                assert!(new, "{function}: {action} on {place} is allowed twice");
            }
        }
    }
    rights
}

fn places(statement: &Value) -> Vec<String> {
    let resources = texts(&statement["Resource"]);
    let Some(condition) = statement.get("Condition") else {
        let place = |resource: &str| match resource.split_once("Arn}/") {
            Some(("${Bucket.", key)) => format!("Bucket {key}"),
            Some(("${Table.", index)) => format!("Table {index}"),
            _ => resource.trim_end_matches(".Arn").to_owned(),
        };
        return resources.into_iter().map(place).collect();
    };
    assert_eq!(resources, ["Table.Arn"]);
    let keys = &condition["ForAllValues:StringLike"]["dynamodb:LeadingKeys"];
    assert_eq!(*condition, json!({"ForAllValues:StringLike": {"dynamodb:LeadingKeys": keys}}));
    texts(keys).into_iter().map(|key| format!("Table {key}")).collect()
}

fn keys(schema: &[KeySchemaElement]) -> Value {
    let key = |key: &KeySchemaElement| json!({"AttributeName": key.attribute_name, "KeyType": key.key_type.as_str()});
    schema.iter().map(key).collect()
}

#[test]
fn the_table_has_the_schema_of_the_store() {
    let client = Client::from_conf(Config::builder().behavior_version(BehaviorVersion::latest()).build());
    let made = ebb_store::table_creation(&client, "table").unwrap();
    let template = template();
    let table = properties(&template, "Table");
    assert_eq!(table["KeySchema"], keys(made.get_key_schema().as_ref().unwrap()));
    let texts = |values: &Value| values.as_array().unwrap().iter().map(Value::to_string).collect::<BTreeSet<_>>();
    let attributes = made.get_attribute_definitions().iter().flatten();
    let attributes =
        attributes.map(|it| json!({"AttributeName": it.attribute_name, "AttributeType": it.attribute_type.as_str()}));
    assert_eq!(texts(&table["AttributeDefinitions"]), texts(&attributes.collect()));
    let indexes: BTreeSet<String> = made
        .get_global_secondary_indexes()
        .iter()
        .flatten()
        .map(|index| {
            let projection = index.projection.as_ref().unwrap().projection_type.as_ref().unwrap().as_str();
            let projection = json!({"ProjectionType": projection});
            let name = index.index_name();
            json!({"IndexName": name, "KeySchema": keys(index.key_schema()), "Projection": projection}).to_string()
        })
        .collect();
    let mut declared = table["GlobalSecondaryIndexes"].as_array().unwrap().clone();
    let limits: Vec<_> =
        declared.iter_mut().map(|index| index.as_object_mut().unwrap().remove("OnDemandThroughput")).collect();
    assert_eq!(declared.iter().map(Value::to_string).collect::<BTreeSet<_>>(), indexes);
    // The throughput limits bound the cost of a loop.
    let bounded = json!({"MaxReadRequestUnits": "MaxReadUnits", "MaxWriteRequestUnits": "MaxWriteUnits"});
    assert_eq!(table["OnDemandThroughput"], bounded);
    assert!(limits.iter().all(|limit| limit.as_ref() == Some(&bounded)), "{limits:?}");
    assert_eq!(table["TimeToLiveSpecification"], json!({"AttributeName": TableSpec::TTL, "Enabled": true}));
}

/// Alarms and the dashboard show exactly the metrics that the functions emit.
#[test]
fn shown_metrics_are_emitted() {
    let (template, text) = (template(), tree::read("template.yaml"));
    let shown = text.split("[\"Ebb/${AWS::StackName}\",\"").skip(1);
    let shown: BTreeSet<&str> = shown.map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(shown, ebb_flow::telemetry::metric_names().collect());
    let resources = template["Resources"].as_object().unwrap().values();
    let own = resources.map(|it| &it["Properties"]).filter(|it| it["Namespace"] == "Ebb/${AWS::StackName}");
    let alarms: BTreeSet<&str> = own.map(|alarm| alarm["MetricName"].as_str().unwrap()).collect();
    let expected = ["Orphaned", "Outages", "Stuck", "SweepLag", "UnconfirmedRemovals", "Undelivered"];
    assert_eq!(alarms, BTreeSet::from(expected));
    let namespace = &template["Globals"]["Function"]["Environment"]["Variables"]["EBB_METRICS_NAMESPACE"];
    assert_eq!(*namespace, "Ebb/${AWS::StackName}");
}

/// A user who may read the configuration of a function sees its variables.
#[test]
fn variables_contain_no_secrets() {
    let template = template();
    let functions = FUNCTIONS.iter().map(|name| &template["Resources"][*name]["Properties"]);
    let mut names = BTreeSet::new();
    for place in functions.chain([&template["Globals"]["Function"]]) {
        let variables = place["Environment"]["Variables"].as_object();
        names.extend(variables.into_iter().flat_map(|all| all.keys().map(String::as_str)));
    }
    assert!(names.contains("EBB_SECRET_ARN") && names.contains("EBB_TABLE"), "{names:?}");
    let secret: BTreeSet<&str> = ebb_lambda::SECRET_VARIABLES.split(' ').collect();
    assert!(names.is_disjoint(&secret), "{:?}", names.intersection(&secret));
}

/// The timeouts of the HTTP API and of the queue, and the in-flight limit, fit the timeout of the functions.
#[test]
fn timeouts_are_consistent() {
    let template = template();
    let seconds = ebb_lambda::TIMEOUT.as_secs();
    assert_eq!(template["Globals"]["Function"]["Timeout"], seconds);
    let resources = template["Resources"].as_object().unwrap();
    for (name, resource) in resources {
        let properties = &resource["Properties"];
        assert_eq!(properties["Timeout"], Value::Null, "{name} overrides the timeout");
        if resource["Type"] == "AWS::ApiGatewayV2::Integration" {
            assert!(properties["TimeoutInMillis"].as_u64().unwrap() > 1_000 * seconds, "{name}");
        }
    }
    // AWS recommends six times the timeout of the function.
    assert!(properties(&template, "WakeupQueue")["VisibilityTimeout"].as_u64().unwrap() >= 6 * seconds);
}

/// A deletion of the stack, or a replacement of a resource, keeps the data. The emulator does not support it.
#[test]
fn table_and_bucket_are_retained() {
    let template = template();
    let resources = template["Resources"].as_object().unwrap().iter();
    let kept = resources.filter(|(_, resource)| {
        ["DeletionPolicy", "UpdateReplacePolicy"].iter().all(|policy| resource[policy] == "Retain")
    });
    assert_eq!(kept.map(|(name, _)| name.as_str()).collect::<BTreeSet<_>>(), BTreeSet::from(["Bucket", "Table"]));
}

#[test]
fn every_documented_route_leads_to_its_function() {
    let template = template();
    let resources = template["Resources"].as_object().unwrap();
    let routes: Vec<(&str, &str)> = resources
        .values()
        .filter(|resource| resource["Type"] == "AWS::ApiGatewayV2::Route")
        .map(|route| {
            let target = route["Properties"]["Target"].as_str().unwrap();
            let integration = target.trim_start_matches("integrations/${").trim_end_matches('}');
            let function = properties(&template, integration)["IntegrationUri"].as_str().unwrap();
            (route["Properties"]["RouteKey"].as_str().unwrap(), function.trim_end_matches(".Arn"))
        })
        .collect();
    // An exact route precedes one with `{proxy+}`.
    let function = |method: &str, path: &str| {
        let exact = routes.iter().find(|(key, _)| *key == format!("{method} {path}"));
        let below = |(key, _): &&(&str, &str)| {
            key.strip_prefix("ANY ")
                .and_then(|key| key.strip_suffix("{proxy+}"))
                .is_some_and(|key| path.starts_with(key))
        };
        exact.or_else(|| routes.iter().find(below)).map(|(_, function)| *function)
    };
    for page in ["GET /", "GET /console", "POST /console/sign-in", "POST /console/selection/confirmed"] {
        let (method, path) = page.split_once(' ').unwrap();
        assert_eq!(function(method, path), Some("Api"), "{page}");
    }
    let documented = serde_json::to_value(ebb_api::openapi()).unwrap();
    for (path, methods) in documented["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            let exact = format!("{method} {path}");
            let expected = match exact.as_str() {
                "POST /v1/events" | "POST /v1/sources/{name}" => "Receive",
                "POST /v1/targets" | "DELETE /v1/targets/{kind}/{name}" => "Receive",
                "POST /v1/callbacks" => "Complete",
                _ => "Api",
            };
            assert_eq!(function(&method, path), Some(expected), "{exact}");
        }
    }
    assert!(routes.contains(&("ANY /mcp", "Api")), "{routes:?}");
}

/// Checks the values of the template that a test has in `template_values.yaml`, and returns them by their paths.
#[track_caller]
fn assert_values(test: &str) -> BTreeMap<String, Value> {
    let template = template();
    let values = tree::read("tests/tests/deployment/template_values.yaml");
    let mut tests: BTreeMap<String, BTreeMap<String, Value>> = serde_saphyr::from_str(&values).unwrap();
    let values = tests.remove(test).unwrap();
    for (path, expected) in &values {
        assert_eq!(template.pointer(path).unwrap_or(&Value::Null), expected, "{path}");
    }
    values
}

#[test]
fn parameters_set_network_memory_and_logs() {
    let values = assert_values("parameters_set_network_memory_and_logs");
    for function in FUNCTIONS {
        for path in [
            format!("/Resources/{function}/Properties/MemorySize"),
            format!("/Parameters/{function}Memory/Default"),
            format!("/Resources/{function}/Properties/ReservedConcurrentExecutions"),
            format!("/Conditions/Reserves{function}"),
            format!("/Parameters/{function}Concurrency/Default"),
        ] {
            assert!(values.contains_key(&path), "{path} is not checked");
        }
    }
}

#[test]
fn a_parameter_selects_the_callback_url() {
    assert_values("a_parameter_selects_the_callback_url");
    let template = template();
    let urls = template["Resources"].as_object().unwrap().values();
    assert_eq!(urls.filter(|resource| resource["Type"] == "AWS::Lambda::Url").count(), 2);
}
