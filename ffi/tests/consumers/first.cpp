// A program of somebody who has installed the library.
#include <slipring.hpp>

#include <iostream>

int main() {
    auto broker = slipring::Broker::open();
    auto scores = broker.subscribe("sports/**");
    broker.publish("sports/cricket", "four!");
    if (auto message = scores.recv())
        std::cout << message->topic() << ": " << message->payload().text() << '\n';
}
