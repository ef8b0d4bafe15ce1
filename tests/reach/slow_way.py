"""Takes connections and passes on what comes, both ways, after a delay; ends with its input.

usage: slow_way.py ADDRESS PORT TARGET_ADDRESS TARGET_PORT SECONDS"""
import asyncio
import contextlib
import sys


async def carry(reader, writer, delay):
    """What is read is written as much later, however much is on its way."""
    loop, under_way = asyncio.get_running_loop(), asyncio.Queue()

    async def deliver():
        while True:
            due, data = await under_way.get()
            await asyncio.sleep(max(0, due - loop.time()))
            if not data:
                writer.close()
                return
            writer.write(data)
            await writer.drain()

    delivery = asyncio.create_task(deliver())
    data = b"some"
    while data:
        try:
            data = await reader.read(1 << 16)
        except OSError:
            data = b""
        under_way.put_nowait((loop.time() + delay, data))
    await asyncio.gather(delivery, return_exceptions=True)


async def main():
    address, port, target, target_port, delay = sys.argv[1:]

    async def take(reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection(target, int(target_port))
        except OSError:
            writer.close()
            return
        with contextlib.suppress(asyncio.CancelledError):  # at the end
            await asyncio.gather(carry(reader, far_writer, float(delay)), carry(far_reader, writer, float(delay)))

    async with await asyncio.start_server(take, address, int(port)):
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())
