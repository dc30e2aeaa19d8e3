use slipring::*;
use std::time::Instant;
fn main() {
    let broker = Broker::builder().memory_budget(1 << 20).build().unwrap();
    core_affinity::set_for_current(core_affinity::get_core_ids().unwrap()[0]);
    let topic = broker.topic("a/b").unwrap();
    let payload = [7u8; 64];
    let n: u64 = std::env::var("N").ok().and_then(|s| s.parse().ok()).unwrap_or(10_000_000);
    let time = |name: &str, f: &mut dyn FnMut()| {
        for _ in 0..2 {
            f();
        }
        let t = Instant::now();
        f();
        println!("{name}: {:.1} ns", t.elapsed().as_nanos() as f64 / n as f64);
    };
    time("no subs single", &mut || {
        for _ in 0..n {
            topic.publish(&payload[..]).unwrap();
        }
    });
    if std::env::args().nth(1).is_some() {
        return;
    }
    let msgs = vec![NewMessage::new(&payload); 64];
    time("no subs batch", &mut || {
        for _ in 0..n / 64 {
            topic.publish_batch(&msgs).unwrap();
        }
    });
    let mut sub = broker.subscription("a/*").overflow(Overflow::DropOldest).open().unwrap();
    time("lossy single", &mut || {
        for _ in 0..n {
            topic.publish(&payload[..]).unwrap();
        }
    });
    drop(sub);
    let mut sub =
        broker.subscription("a/*").overflow(Overflow::Block { timeout: None }).open().unwrap();
    let mut s = 0u64;
    time("same thread block single publish+poll per 512", &mut || {
        for _ in 0..n / 512 {
            for _ in 0..512 {
                topic.publish(&payload[..]).unwrap();
            }
            sub.poll(512, |m| s += m.payload()[0] as u64).unwrap();
        }
    });
    time("same thread block single publish+recv", &mut || {
        for _ in 0..n {
            topic.publish(&payload[..]).unwrap();
            s += sub.recv().unwrap().payload()[0] as u64;
        }
    });
    time("same thread block batch", &mut || {
        for _ in 0..n / 512 {
            for _ in 0..8 {
                topic.publish_batch(&msgs).unwrap();
            }
            sub.poll(512, |m| s += m.payload()[0] as u64).unwrap();
        }
    });
    println!("{s}");
}
