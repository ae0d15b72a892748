//! Containers whose image never arrives, by an engine of these tests that speaks enough of Docker's API.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{delete, get, post};
use ebb_local::pods::{Containers, Options, ProcessRelay};
use ebb_wire::callback::ReasonCode;
use ebb_wire::relay::WorkState;
use tokio::net::UnixListener;
use tokio::sync::Notify;

use crate::world::*;

/// A world whose engine has no image and never gets one. Says when it was asked to pull.
fn world() -> (World, Arc<Notify>) {
    let pulled = Arc::new(Notify::new());
    let asked = Arc::clone(&pulled);
    let pull = move || {
        asked.notify_one();
        std::future::pending::<StatusCode>()
    };
    let engine = Router::new()
        .route("/version", get(|| async { r#"{"ApiVersion": "1.41", "Version": "1"}"# }))
        .route(
            "/containers/create",
            post(|| async { (StatusCode::NOT_FOUND, r#"{"message": "no such image"}"#) }),
        )
        .route("/images/create", post(pull))
        .route("/containers/{name}", delete(|| async { StatusCode::NOT_FOUND }))
        .route("/containers/json", get(|| async { "[]" }));
    let (state, control) = (tempfile::tempdir().unwrap(), Arc::new(ControlPlane::default()));
    let socket = state.path().join("engine");
    let host = format!("unix://{}", socket.display());
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move { axum::serve(listener, engine).await });
    // The image comes before the runner.
    let containers = Some(Containers { host, runner: "/bin/sh".into() });
    let options = Options { containers, ..options(control.clone()) };
    let relay = ProcessRelay::open(state.path(), options).unwrap();
    (World { relay, control, state }, pulled)
}

pub(crate) async fn cancel_during_a_pull() {
    let (world, pulled) = world();
    let request = sh("true");
    world.ensure(request.clone()).await;
    tokio::time::timeout(PATIENCE, pulled.notified()).await.expect("the image is pulled");
    assert_eq!(world.cancel(&request.name, Duration::ZERO).await, WorkState::Tombstoned);
    assert!(world.control.requests.lock().unwrap().is_empty());
}

pub(crate) async fn deadline_during_a_pull() {
    let (world, pulled) = world();
    let mut request = sh("true");
    request.timeout_ms = 3000;
    let result = world.run(request).await;
    tokio::time::timeout(PATIENCE, pulled.notified()).await.expect("the image was pulled");
    assert_eq!(reason(&result).code, ReasonCode::Timeout);
    assert!(reason(&result).message.contains("did not start within the 3000 ms"), "{result:?}");
}
