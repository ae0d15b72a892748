use proptest::prelude::*;

use super::*;

fn shown(text: &str, scope: Scope) -> String {
    match parse(text, scope) {
        Ok(expression) => {
            let list: Vec<String> = expression
                .references
                .iter()
                .map(|r| {
                    let optional = if r.optional { "?" } else { "" };
                    format!("{}{optional} {:?} {}+{}", r.source, r.usage, r.offset, r.length)
                })
                .collect();
            list.join("; ")
        }
        Err(mistakes) => {
            let list: Vec<String> = mistakes
                .iter()
                .map(|m| {
                    let help = m.help.as_deref().map(|help| format!(" ({help})")).unwrap_or_default();
                    format!("{} {}+{}: {}{help}", m.code, m.offset, m.length, m.message)
                })
                .collect();
            list.join("\n")
        }
    }
}

#[test]
fn references_in_all_spellings() {
    let mut table = String::new();
    for text in [
        "units.database.outputs.dsn",
        "units[\"queue\"].outputs[\"queue-url\"]",
        "units['queue'].outputs['queue-url']",
        "units.?queue.outputs.url",
        "units.queue.outputs[?\"url\"]",
        "units.queue.outputs.?url.orValue('none')",
        "units.queue.outputs.body.id",
        "has(units.a.outputs.b) ? units.a.outputs.b : params.x",
        "params.x",
        "params[\"x-y\"]",
        "params[?\"x\"]",
        "params.?x",
        "params.config.host",
        "params.list[params.index]",
        "target.labels[\"team\"] + target.name",
        "params.names.exists(n, n == target.name)",
        "params.names.all(params_, params_ != '') && 'params.zzz' != params.names[0]",
        "secretRef(units.database.outputs.dsn)",
        "secretRef(params.?dsn).name",
        "size(params.x) > 0 ? base64.encode(bytes(params.x)) : optional.none().orValue(\"\")",
        "type(params.x) == string",
        "{\"a\": units.a.outputs.b, \"c\": [params.d]}",
        "(params.a)",
        "params.count - 1 - params.other",
        "params.count-1",
        "params.count -1",
        "units.create-db.outputs.queue-url",
        "units.?create-db.outputs.?queue-url",
        "units[\"create-db\"].outputs.queue-url.host-name == '' ? 1 : 2",
        "has(units.create-db.outputs.x) && units.create_db.outputs.create-db == 'params.a-b'",
        "params.seed-rows-count > 0 && params.a-b-params.c - params.seed-rows-count > 1",
        "params.a - b.c",
        "resource.name + resource.key",
        ".params.x",
    ] {
        table += &format!("{text}\n    {}\n", shown(text, Scope::Plugin));
    }
    for (text, scope) in [
        ("resources.pg.outputs[\"create.dsn\"]", Scope::Sandbox),
        ("response.body.id", Scope::Response),
        ("response.?body.id", Scope::Response),
        ("object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')", Scope::Object),
    ] {
        table += &format!("{text}\n    {}\n", shown(text, scope));
    }
    insta::assert_snapshot!(table);
}

#[test]
fn mistakes() {
    let mut table = String::new();
    let long = format!("'{}'", "x".repeat(MAX_LENGTH));
    let deep = format!("{}1{}", "[".repeat(30), "]".repeat(30));
    let wide = vec!["1"; 600].join("+");
    for text in [
        "outputs.queue-url",
        "params.config.host-name",
        "resource.kye",
        "units.create-db.output",
        "units.make.outputs[params.which]",
        "units[params.which].outputs.x",
        "units",
        "units.make",
        "units.make.outputs",
        "units.make.url",
        "units.make.output.url",
        "params",
        "size(params)",
        "params[params.x]",
        "unit.make.outputs.url",
        "param.x",
        "foo + 1",
        "resources.pg.outputs.dsn",
        "response.status",
        "target.nmae",
        "target",
        "upper(params.x)",
        "has(params)",
        "params.exists(x)",
        "'%s'.format([1])",
        "secretRef(params.a + 'x')",
        "[1].map(a, [1].map(b, [1].map(c, c)))",
        "Message{field: 1}",
        "params.x +",
        "params.x ++ 1",
        "'not closed",
        "params.x = 3",
        "a b",
        "",
        "ü",
        "{1: 2",
        &long,
        &deep,
        &wide,
    ] {
        let shown = shown(text, Scope::Plugin).replace('\n', "\n    ");
        table += &format!("{}\n    {shown}\n", text.chars().take(60).collect::<String>());
    }
    table += &format!("params.x in a sandbox\n    {}\n", shown("params.x", Scope::Sandbox));
    table += &format!("response.boddy\n    {}\n", shown("response.boddy", Scope::Response));
    insta::assert_snapshot!(table);
}

#[test]
fn long_chains_fit_a_small_stack() {
    let chains = [
        vec!["1"; 1300].join(" + "),
        "true ? 1 : ".repeat(370) + "1",
        "[1]".to_owned() + &".map(x,x)".repeat(450),
        "a".to_owned() + &".f()".repeat(1020),
        "[".repeat(4000),
        "(".repeat(2000) + "1" + &")".repeat(2000),
        "{1:".repeat(1300),
        "x.map(y,".repeat(500),
        "- ".repeat(2000) + "1",
        "!".repeat(4000) + "true",
    ];
    for text in chains {
        let thread = std::thread::Builder::new().stack_size(2 << 20);
        let parsed = thread.spawn(move || parse(&text, Scope::Plugin).is_ok()).unwrap().join();
        assert!(parsed.is_ok());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_tokens_are_judged(tokens in prop::collection::vec(prop::sample::select(vec![
        "units", "params", "a", ".", ".?", "[", "]", "[?", "\"x\"", "'", "(", ")", "{", "}", "-", "+", "?", ":",
        "outputs", "has", "map", "exists", "secretRef", ",", "1", "in", "&&", "!", " ", "\n", "//", "ü", "r'", "b\"",
    ]), 0..40)) {
        let _ = parse(&tokens.concat(), Scope::Plugin);
    }
}

#[test]
fn patterns_stand_in_the_expression_and_are_small() {
    for (text, expected) in [
        ("response.body.matches('^a+$')", "response Part 0+21"),
        ("matches(response.body, 'a{1,100}')", "response Part 8+13"),
        ("response.body.matches(response.headers.p)", "pattern 14+0: the pattern of `matches` is computed"),
        ("response.body.matches('a' + 'b')", "pattern 14+0: the pattern of `matches` is computed"),
        (
            "response.body.matches('(a')",
            "pattern 14+0: the pattern of `matches` is not a regular expression: unclosed group",
        ),
        (
            "response.body.matches('((a{1,100}){1,100}){1,100}')",
            "pattern 14+0: the pattern of `matches` cannot be used: it takes more than 65536 bytes when it is compiled",
        ),
    ] {
        let shown = shown(text, Scope::Response);
        assert_eq!(shown.split(" (use small").next(), Some(expected), "{text}");
        assert_eq!(shown.starts_with("pattern"), shown.contains("small numbers"), "{shown}");
    }
}

#[test]
fn matching_costs_in_proportion_to_the_text() {
    let expression = parse("response.matches('(a|b|ab)*(a|b| )*c$')", Scope::Response).unwrap();
    let over = |bytes: usize| {
        let text = convert::from_json(&serde_json::Value::from("ab ".repeat(bytes / 3)));
        evaluate(&expression, [("response", text)].into())
    };
    assert_eq!(over(300), Ok(convert::CelOutput::Json(false.into())));
    assert_eq!(over(1 << 20), Ok(convert::CelOutput::Json(false.into())));
    let Err(EvaluationError::TooCostly(cost)) = over(10 << 20) else { panic!("10 MiB are not too much") };
    assert!((MAX_COST..MAX_COST * 20).contains(&cost), "{cost}");
    for (text, expected) in [
        ("response.matches('^a+b?$')", true),
        ("matches(response, 'b')", false),
        ("['x', response].exists(t, t.matches('^a') && !t.matches('b'))", true),
    ] {
        let expression = parse(text, Scope::Response).unwrap();
        let variables = [("response", convert::from_json(&"aaa".into()))].into();
        assert_eq!(evaluate(&expression, variables), Ok(convert::CelOutput::Json(expected.into())), "{text}");
    }
}

#[test]
fn an_expression_has_bounded_issues_and_patterns() {
    let wrong = parse(&format!("[{}]", "f(),".repeat(200)), Scope::Plugin).unwrap_err();
    assert_eq!(wrong.len(), MAX_ISSUES);
    let matching = |pattern: &str, count: usize| {
        let all: Vec<String> = (0..count).map(|n| format!("response.body.matches('{pattern}{n}')")).collect();
        parse(&format!("[{}]", all.join(", ")), Scope::Response)
    };
    let steps = |pattern| matching(pattern, 9).unwrap().steps;
    assert!(steps("a") < 10_000 && steps("(?i)[^a]") > 9 * 100_000);
    let wrong = matching("(?i)[^a]", 60).unwrap_err();
    assert!((30..60).contains(&wrong.len()) || wrong.len() == MAX_ISSUES, "{}", wrong.len());
    assert!(wrong.iter().all(|wrong| wrong.message.ends_with("it takes too many steps to compile")), "{wrong:?}");
}
