// A camera that writes its frames where they are read: no frame is ever copied.
//
//     c++ -std=c++17 -Iinclude examples/cpp/loan.cpp -Ltarget/release -lslipring -lpthread -o loan
//     LD_LIBRARY_PATH=target/release ./loan [frames]
//
// A loan is space in the memory of the broker. The frame gets its place in the order when it is
// committed; one that turns out bad is destroyed, and nobody has waited for it.
#include "slipring.hpp"

#include <iostream>
#include <string>
#include <thread>

constexpr std::size_t width = 64, height = 48, shutter = 10;

static std::uint8_t pixel(std::size_t frame, std::size_t x, std::size_t y) {
    return static_cast<std::uint8_t>(frame * 7 + x * 3 + y * 5);
}

// Draws the wanted number of frames; every tenth attempt is out of focus, and given up.
static void draw(const slipring::Broker &broker, std::size_t frames) {
    auto topic = broker.topic("camera/1/frames");
    std::size_t good = 0, bad = 0;
    for (std::size_t attempt = 1; good < frames; ++attempt) {
        auto frame = topic.loan(width * height);
        for (std::size_t y = 0; y < height; ++y)
            for (std::size_t x = 0; x < width; ++x)
                frame.payload()[y * width + x] = pixel(good, x, y);
        if (attempt % shutter == 0) {
            ++bad;
        } else {
            frame.commit();
            ++good;
        }
    }
    std::cout << "published " << good << " frames of " << width << " x " << height << ", gave up "
              << bad << std::endl;
    broker.close();
}

int main(int argc, char **argv) {
    std::size_t wanted = argc > 1 ? std::stoul(argv[1]) : 1000;
    auto broker = slipring::Broker::open();
    auto frames = broker.subscribe("camera/*/frames",
                                   slipring::SubscriptionOptions()
                                       .delivery(slipring::Delivery::at_most_once)
                                       .overflow(slipring::Overflow::block())
                                       .capacity(8));
    std::thread camera([&] { draw(broker, wanted); });

    // Reads each frame where the camera has written it.
    std::size_t seen = 0, wrong = 0;
    auto look = [&](const slipring::Message &message) {
        bool same = message.payload().size() == width * height;
        for (std::size_t at = 0; same && at < width * height; ++at)
            same = message.payload()[at] == pixel(seen, at % width, at / width);
        wrong += !same;
        ++seen;
    };
    do
        frames.wait();
    while (!frames.poll(8, look).ended());
    camera.join();
    std::cout << "received " << seen << " frames, "
              << (wrong == 0 ? "every pixel as drawn" : "some of them damaged") << '\n';
    return wrong != 0;
}
