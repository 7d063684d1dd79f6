"""A job that runs on one host at a time: python nightly.py [CONFIG-OR-URL]

The block raises Lost at its end if another holder may have overlapped."""
import sys

import mortise


def main() -> int:
    with mortise.open(sys.argv[1] if len(sys.argv) > 1 else None) as client:
        try:
            with client.lock("nightly", timeout=5) as lease:
                lease.check()  # raises Lost: before each step that cannot be undone
                print("working, token", lease.token)
        except mortise.NotAcquired as failure:  # "nightly" is held by web3 (pid 4711) …; or no answer came in five seconds
            print(failure, file=sys.stderr)
            return 75
    return 0


if __name__ == "__main__":
    sys.exit(main())
