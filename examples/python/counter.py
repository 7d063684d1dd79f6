"""Four processes add to one number in a file: python counter.py CONFIG-OR-URL FILE

Each process opens a client of its own: a client does not survive fork. The decorator locks one account at a time."""
import multiprocessing
import pathlib
import sys

import mortise

PROCESSES, ROUNDS = 4, 50


def work(where: str, file: str) -> None:
    client = mortise.open(where)
    path = pathlib.Path(file)

    @client.locked("counter:{account}", timeout=60, lease="lease")
    def add(account: str, lease: mortise.Lease | None = None) -> None:
        number = int(path.read_text())
        assert lease is not None
        lease.check()
        path.write_text(str(number + 1))

    for _ in range(ROUNDS):
        add("main")
    client.close()


def main() -> int:
    where, file = sys.argv[1:]
    pathlib.Path(file).write_text("0")
    children = [multiprocessing.Process(target=work, args=(where, file)) for _ in range(PROCESSES)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    found = pathlib.Path(file).read_text()
    print(f"{found} of {PROCESSES * ROUNDS}")
    return 0 if int(found) == PROCESSES * ROUNDS and all(child.exitcode == 0 for child in children) else 1


if __name__ == "__main__":
    sys.exit(main())
