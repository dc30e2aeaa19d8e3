use slipring::*;
use std::time::Instant;
fn main() {
    let n: u64 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(20_000_000);
    let batch: usize = std::env::args().nth(2).and_then(|s| s.parse().ok()).unwrap_or(64);
    let nsub: usize = std::env::args().nth(3).and_then(|s| s.parse().ok()).unwrap_or(1);
    let budget: usize = std::env::args().nth(4).and_then(|s| s.parse().ok()).unwrap_or(64 << 20);
    let handler = std::env::args().nth(5).is_some();
    let broker = Broker::builder().memory_budget(budget).build().unwrap();
    let cores = core_affinity::get_core_ids().unwrap();
    let topic = broker.topic("a/b").unwrap();
    for run in 0..4 {
        let total = n * nsub as u64;
        let t0;
        if handler {
            use std::sync::Arc;
            use std::sync::atomic::*;
            let got = Arc::new(AtomicU64::new(0));
            let g2 = got.clone();
            let mut sum = 0u64;
            let mut c = 0u64;
            let _h = broker
                .subscription("a/*")
                .overflow(Overflow::Block { timeout: None })
                .handler(move |m| {
                    let p = m.payload();
                    sum = sum.wrapping_add(
                        u64::from_ne_bytes(p[..8].try_into().unwrap())
                            ^ u64::from_ne_bytes(p[56..].try_into().unwrap()),
                    );
                    c += 1;
                    if c == n {
                        g2.store(sum | 1, Ordering::Release);
                    }
                })
                .unwrap();
            core_affinity::set_for_current(cores[0]);
            t0 = Instant::now();
            publish(&topic, n, batch);
            while got.load(Ordering::Acquire) == 0 {
                std::hint::spin_loop();
            }
        } else {
            let mut subs: Vec<_> = (0..nsub)
                .map(|_| {
                    broker
                        .subscription("a/*")
                        .capacity(1024)
                        .overflow(Overflow::Block { timeout: None })
                        .wait(WaitStrategy::BusySpin)
                        .open()
                        .unwrap()
                })
                .collect();
            let c1 = cores[1];
            let h = std::thread::spawn(move || {
                core_affinity::set_for_current(c1);
                let mut idle = Idle::new(WaitStrategy::BusySpin);
                let mut got = 0u64;
                let mut sum = 0u64;
                while got < total {
                    let mut found = 0;
                    for s in &mut subs {
                        found += s
                            .poll(if nsub == 1 { 64 } else { 32 }, |m| {
                                let p = m.payload();
                                sum = sum.wrapping_add(
                                    u64::from_ne_bytes(p[..8].try_into().unwrap())
                                        ^ u64::from_ne_bytes(p[56..].try_into().unwrap()),
                                );
                            })
                            .unwrap();
                    }
                    got += found as u64;
                    idle.rest(found);
                }
                sum
            });
            core_affinity::set_for_current(cores[0]);
            t0 = Instant::now();
            publish(&topic, n, batch);
            std::hint::black_box(h.join().unwrap());
        }
        let dt = t0.elapsed();
        println!(
            "run {run} handler={handler} nsub={nsub} batch={batch}: {:.1} M deliveries/s {:.1} ns/publish",
            total as f64 / dt.as_secs_f64() / 1e6,
            dt.as_nanos() as f64 / n as f64
        );
    }
}
fn publish(topic: &Topic, n: u64, batch: usize) {
    let mut payloads = vec![[0u8; 64]; batch];
    let mut i = 0u64;
    while i < n {
        if batch == 1 {
            payloads[0][..8].copy_from_slice(&i.to_ne_bytes());
            topic.publish(&payloads[0][..]).unwrap();
        } else {
            for (k, p) in payloads.iter_mut().enumerate() {
                p[..8].copy_from_slice(&(i + k as u64).to_ne_bytes());
            }
            let msgs: Vec<NewMessage> = payloads.iter().map(|p| NewMessage::new(p)).collect();
            topic.publish_batch(&msgs).unwrap();
        }
        i += batch as u64;
    }
}
