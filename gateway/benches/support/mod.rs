//! A server on a thread of its own, until the program ends, and the processes that benches measure.

#![allow(dead_code)]

pub(crate) mod processes;

use axum::Router;
use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use tokio::runtime::Builder;

/// Serves on a free port; answers the address, with `http://`.
pub(crate) fn serve(router: Router) -> String {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            sender.send(format!("http://{address}")).unwrap();
            // Otherwise the parts of a stream wait for acknowledgements, which providers avoid as well.
            let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
            axum::serve(listener, router).await.unwrap();
        });
    });
    receiver.recv().unwrap()
}
