"""Frames as arrays: written into the broker's memory, and read there by two consumers."""

import numpy
import slipring

HEIGHT, WIDTH = 480, 640


def main() -> None:
    with slipring.open() as broker:
        camera = broker.topic("camera/front")
        brightness = broker.subscribe("camera/*")
        motion = broker.subscribe("camera/front")
        for n in range(3):
            with camera.loan(HEIGHT * WIDTH) as view:
                numpy.frombuffer(view, numpy.uint8).fill(n)
        before: slipring.Message | None = None
        for frame in brightness.get_many(3):
            print("brightness", numpy.frombuffer(frame.payload, numpy.uint8).mean())
        for frame in motion.get_many(3):
            if before is not None:
                old = numpy.frombuffer(before.payload, numpy.uint8)
                new = numpy.frombuffer(frame.payload, numpy.uint8)
                print("moved", int((new != old).sum()), "pixels")
            before = frame


if __name__ == "__main__":
    main()
