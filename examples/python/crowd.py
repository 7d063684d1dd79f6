"""A thousand tasks in one event loop, each with a lock of its own, and at most four of them work at once:
python crowd.py [CONFIG-OR-URL]"""
import asyncio
import sys

import mortise


async def task(client: mortise.Client, number: int) -> int:
    async with client.alock(f"crowd/{number}") as lease:
        async with client.alock("crowd/slots", permits=4):
            await asyncio.sleep(0)
            lease.check()
    return 1


async def main() -> None:
    async with mortise.open(sys.argv[1] if len(sys.argv) > 1 else None) as client:
        done = await asyncio.gather(*(task(client, number) for number in range(1000)))
        print(sum(done), "tasks; four at a time")


asyncio.run(main())
