//! The first program: subscribe, publish, receive.
use slipring::Broker;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let broker = Broker::in_memory();
    let mut scores = broker.subscribe("sports/**")?;
    broker.publish("sports/cricket/live", "four!")?;
    let message = scores.recv()?;
    println!("{}: {}", message.topic(), String::from_utf8_lossy(message.payload()));
    message.ack()?;
    Ok(())
}
