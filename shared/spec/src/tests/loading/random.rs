//! No text makes loading panic, and what loads can be written and read again.

use proptest::prelude::*;

use super::{FIXTURES, expanded, meaning, text, vars};
use crate::load::{self, FileError, Files, Vars};

/// Every file there is has the same few bytes.
struct Same;

impl Files for Same {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        match path.contains("..") {
            true => Err(FileError::Outside(path.to_owned())),
            false => Ok(b"#!/bin/sh\necho \"@{x}\"\n".to_vec()),
        }
    }
}

fn survives(text: &str) -> Result<(), TestCaseError> {
    match load::documents("f.yaml", text, &Same, &vars()) {
        Ok(loaded) => {
            for document in &loaded.documents {
                let again = load::document("g.yaml", expanded(document), &load::NoFiles, &Vars::none());
                let again = again.map_err(|e| TestCaseError::fail(format!("{e}\n{}", expanded(document))))?;
                prop_assert_eq!(meaning(document), meaning(&again));
            }
        }
        Err(wrong) => {
            prop_assert!(wrong.has_errors());
            for diagnostic in &wrong {
                diagnostic.drawn(crate::diagnostic::Drawing::Plain);
                diagnostic.drawn(crate::diagnostic::Drawing::Ascii);
            }
        }
    }
    Ok(())
}

/// Pieces that documents are made of.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,12}",
        "[ \\n\\t:{}\\[\\]\"'|>@$&*!#,-]{1,6}",
        prop::sample::select(vec![
            "name: a\n",
            "spec:\n",
            "  runner: {image: x}\n",
            "  create:\n",
            "  - name: a\n",
            "    script: |\n",
            "      #!/bin/sh\n",
            "@{embed: x}",
            "\"@{dev}\"",
            "@{embed[yaml]: x}",
            "apiVersion: ebb.dev/v1\n",
            "kind: Plugin\n",
            "null",
            "5",
            "yes",
            "1e999",
            "---\n",
            "<<: *a\n",
            "&a ",
            "\u{feff}",
            "\u{2028}",
            "\r\n",
            "\0",
            "é",
        ])
        .prop_map(str::to_owned),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text(text in "\\PC*") {
        survives(&text)?;
    }

    #[test]
    fn arbitrary_pieces(pieces in prop::collection::vec(piece(), 0..12)) {
        survives(&pieces.concat())?;
    }

    #[test]
    fn mutated_fixtures(
        fixture in prop::sample::select(FIXTURES.to_vec()),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..20, piece()), 1..4),
    ) {
        let mut characters: Vec<char> = text(fixture).chars().collect();
        for (at, length, piece) in cuts {
            let at = at.index(characters.len() + 1);
            let end = (at + length).min(characters.len());
            characters.splice(at..end, piece.chars());
        }
        survives(&characters.into_iter().collect::<String>())?;
    }

    #[test]
    fn any_texts_survive_being_written(description in ".*", script in "\\PC*[\\n \\t]{0,3}", label in "\\PC{0,20}") {
        let document = serde_json::json!({
            "name": "a",
            "spec": {
                "description": description,
                "runner": {"image": "x"},
                "create": [{"name": "b", "script": format!("#!/bin/sh\n{script}")}]
            }
        });
        survives(&document.to_string())?;
        let sandbox = serde_json::json!({"name": "a", "spec": {"cluster": "c", "labels": {label.clone(): label}}});
        survives(&sandbox.to_string())?;
    }

    #[test]
    fn any_numbers_survive_being_written(number in any::<f64>(), whole in any::<i64>(), large in any::<u64>()) {
        let document = serde_json::json!({
            "apiVersion": "ebb.dev/v1",
            "kind": "Sandbox",
            "name": "a",
            "resources": {"r": {"plugin": "p", "params": {"n": number, "w": whole, "l": large}}}
        });
        survives(&document.to_string())?;
    }
}

#[test]
fn the_deepest_document_leaves_room_on_a_usual_stack() {
    let deep = |levels: usize| -> String { (0..levels).map(|n| format!("{}a:\n", " ".repeat(n))).collect() };
    let loading = std::thread::Builder::new().stack_size(1536 << 10).spawn(move || {
        for levels in [1, load::MAX_DEPTH - 1, load::MAX_DEPTH, load::MAX_DEPTH + 1, 100, 2000] {
            let wrong = load::documents("f", &deep(levels), &load::NoFiles, &Vars::none()).unwrap_err();
            let deep = wrong.iter().any(|d| d.code == "too-complex");
            assert_eq!(deep, levels > load::MAX_DEPTH, "{levels} {wrong}");
        }
    });
    loading.unwrap().join().unwrap();
}
