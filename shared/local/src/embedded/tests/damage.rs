//! Starts with lost or changed files of a table, and the text that deletions leave in them.

use std::fs;
use std::path::Path;

use aws_sdk_dynamodb::types::AttributeValue;
use ebb_store::ItemTable as _;
use ebb_store::item_table::{AttributeChange, ItemKey};
use tempfile::TempDir;

use super::super::table::write_queue::delete_expired;
use super::{EmbeddedTable, StateDurability, add, addition, connection, new_table, numbers, open, refusal};

const LAST: &str = "last-change";
const LOG: &str = "table/table.sqlite-wal";
const TABLE: &str = "table/table.sqlite";

/// Returns the changed bytes of a file, or `None` for a lost one.
type FileChange<'a> = &'a dyn Fn(Vec<u8>) -> Option<Vec<u8>>;

/// Returns a copy of the files of a table. That of an open table is what a killed process leaves.
fn copied(state: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    fs::create_dir(copy.path().join("table")).unwrap();
    for name in [LAST, LOG, TABLE] {
        fs::copy(state.join(name), copy.path().join(name)).unwrap();
    }
    copy
}

#[tokio::test]
async fn a_lost_or_changed_file_is_noticed() {
    let [(folder, table), (other_folder, other)] = [new_table(), new_table()];
    for number in 0..50 {
        assert!(add(&table, &number.to_string(), 1).await && add(&other, "x", number).await);
    }
    let flip = |mut bytes: Vec<u8>| {
        let middle = bytes.len() / 2;
        bytes.iter_mut().skip(middle).take(1).for_each(|byte| *byte ^= 1);
        bytes
    };
    let foreign = fs::read(other_folder.path().join(LOG)).unwrap();
    let older = fs::read(folder.path().join(TABLE)).unwrap();
    // The last value is true if the change is harmless after a clean stop.
    let changes: [(&str, FileChange<'_>, bool); 8] = [
        (LOG, &|_| None, true),
        (LOG, &|_| Some(Vec::new()), true),
        (LOG, &|log| Some(log[..log.len() / 2].to_vec()), true),
        (LOG, &|log| Some(flip(log)), true),
        (LOG, &|_| Some(foreign.clone()), false),
        (LAST, &|_| None, false),
        (LAST, &|line| Some(flip(line)), false),
        (TABLE, &|_| Some(older.clone()), false),
    ];
    let mut lost = 0;
    for is_stopped in [false, true] {
        if is_stopped {
            table.close();
        }
        assert_eq!(open(copied(folder.path()).path()).scan().unwrap().len(), 50);
        for (number, (name, change, is_harmless)) in changes.iter().enumerate() {
            let copy = copied(folder.path());
            let file = copy.path().join(name);
            match change(fs::read(&file).unwrap()) {
                Some(bytes) => fs::write(&file, bytes).unwrap(),
                None => fs::remove_file(&file).unwrap(),
            }
            // The file is unchanged while all writes are in the log.
            if if is_stopped { *is_harmless } else { *name == TABLE } {
                assert_eq!(open(copy.path()).scan().unwrap().len(), 50, "{number}");
                continue;
            }
            let error = refusal(copy.path());
            assert!(error.contains("it lacks acknowledged writes: expected "), "{number}: {error}");
            if error.contains("found none") {
                assert!(error.contains("remove the folder"), "{error}");
                fs::write(copy.path().join(LAST), "any\n").unwrap();
                assert!(refusal(copy.path()).contains("expected any, found none"));
                lost += 1;
                continue;
            }
            assert!(error.contains(&format!("run `echo any >{}`", copy.path().join(LAST).display())), "{error}");
            fs::write(copy.path().join(LAST), "any\n").unwrap();
            assert!(add(&open(copy.path()), "new", 1).await);
            let accepted = open(copy.path());
            assert_eq!(numbers(&accepted, "new").await, [1]);
            assert_eq!(accepted.scan().unwrap().len() < 51, *name != LAST, "{number}");
        }
    }
    assert!((1..8).contains(&lost), "{lost}");
    // A row that is missing in all indexes too.
    connection(&folder).execute_batch("DROP TRIGGER items_removed; DELETE FROM items WHERE pk = '1'").unwrap();
    let error = refusal(folder.path());
    assert!(error.contains("expected all rows, found a missing or old one"), "{error}");
}

/// Each row is whole, or the start or a read of it fails.
#[tokio::test]
async fn a_flipped_bit_hides_and_renames_no_row() {
    let (folder, table) = new_table();
    for number in 0..60 {
        let mut write = addition(&format!("v{number}"), 1);
        for (name, text) in [("l", "targets".to_owned()), ("text", "x".repeat(300))] {
            write.expression.changes.insert(name.to_owned(), AttributeChange::Set(AttributeValue::S(text)));
        }
        table.write(&write).await.unwrap();
    }
    table.close();
    let (whole, bytes) = (table.scan().unwrap(), fs::read(folder.path().join(TABLE)).unwrap());
    let (mut refused, mut damaged, mut unharmed) = (0, 0, 0);
    for number in 0..200 {
        let copy = copied(folder.path());
        let (mut flipped, bit) = (bytes.clone(), number * 7_919_317 % (bytes.len() * 8));
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(copy.path().join(TABLE), flipped).unwrap();
        let Ok(table) = EmbeddedTable::open(copy.path(), StateDurability::Process) else {
            refused += 1;
            continue;
        };
        let mut is_damaged = false;
        for item in &whole {
            match table.get(ItemKey::of(item).unwrap()).await {
                Ok(found) => assert_eq!(found.value.as_ref(), Some(item), "bit {bit}"),
                Err(_) => is_damaged = true,
            }
        }
        assert_eq!(table.scan().is_ok_and(|found| found == whole), !is_damaged, "bit {bit}");
        if is_damaged { damaged += 1 } else { unharmed += 1 }
    }
    assert!(refused > 10 && damaged > 10 && unharmed > 10, "{refused} {damaged} {unharmed}");
}

/// The table is closed while it is still in use. The log is emptied each minute too.
#[tokio::test]
async fn deleted_text_is_in_no_file() {
    let (folder, table) = new_table();
    for (key, text) in [("small", "canary".to_owned()), ("large", "canary".repeat(5_000))] {
        let mut write = addition(key, 1);
        write.expression.changes.insert("text".to_owned(), AttributeChange::Set(AttributeValue::S(text)));
        table.write(&write).await.unwrap();
    }
    let has_text = |name: &str| fs::read(folder.path().join(name)).unwrap().windows(6).any(|text| text == b"canary");
    assert!(has_text(LOG));
    table.delete_batch(["small", "large"].map(|key| ItemKey::new(key, "h")).into()).await.unwrap();
    delete_expired(&connection(&folder));
    assert!(!has_text(LOG) && !has_text(TABLE));
    assert!(add(&table, "last", 1).await);
    table.close();
    assert_eq!(fs::metadata(folder.path().join(LOG)).unwrap().len(), 0);
    assert!(table.write(&addition("late", 1)).await.is_err());
    assert_eq!(numbers(&table, "small").await, [0; 0]);
}
