//! Renders a unit of an attempt with its decrypted values.

use std::cell::RefCell;
use std::cmp::Reverse;

use ebb_documents::render::{self, OpenSealed, RenderResult, RenderValue, RenderedRequest, SealedValue};
use ebb_documents::{KnownOutputs, RenderedUnit, TargetFacts, UnitContext};
use ebb_protocol::{SecretText, UnitValue};

use crate::run::masking::add_opened;
use crate::{AttemptContext, sealed_values};

/// Renders a unit, after `poll` if its request is repeated. Decrypts the sensitive values that it sends to its executor, and
/// returns their texts.
pub(super) fn rendered(
    context: AttemptContext<'_>,
    values: (&TargetFacts, &KnownOutputs),
    poll: Option<&serde_json::Value>,
) -> (RenderResult<RenderedUnit>, Vec<SecretText>) {
    opened(context, values, |unit, open| match poll {
        Some(poll) => render::repeated_unit(unit, poll, Some(open)),
        None => render::unit(unit, Some(open)),
    })
}

/// Renders the question before a request that is repeated, if there is one, as [`rendered`] does.
pub(super) fn repeat_question(
    context: AttemptContext<'_>,
    values: (&TargetFacts, &KnownOutputs),
) -> (RenderResult<Option<RenderedRequest>>, Vec<SecretText>) {
    opened(context, values, |unit, open| unit.repeat_question(open))
}

fn opened<T>(
    context: AttemptContext<'_>,
    (facts, known): (&TargetFacts, &KnownOutputs),
    render: impl FnOnce(UnitContext<'_>, &OpenSealed<'_>) -> T,
) -> (T, Vec<SecretText>) {
    let opened: RefCell<Vec<SecretText>> = RefCell::default();
    let open = |sealed: &SealedValue| match sealed_values::open(&context.env.settings.unit_keys, sealed)? {
        UnitValue::Json(json) => {
            add_opened(&mut opened.borrow_mut(), &json);
            Some(RenderValue::Json(json))
        }
        UnitValue::Bytes(bytes) => Some(RenderValue::Bytes(bytes)),
        UnitValue::Secret(_) | UnitValue::Sealed(_) => None,
    };
    let (plan, at) = (&context.run.loaded.plan, context.unit_ref());
    let rendered = render(UnitContext { plan, at, facts, known }, &open);
    let mut opened = opened.into_inner();
    opened.sort_by_key(|text| Reverse(text.len()));
    (rendered, opened)
}
