"""client.locked()."""
import asyncio

import pytest

import mortise


def test_decorator(client, other):
    @client.locked("job:{id}", timeout=0)
    def job(id, twice=False):
        """Its text."""
        assert [info.name for info in other.list()] == [f"job:{id}"]
        return id * 2 if twice else id

    assert job(7) == 7 and job(id=8, twice=True) == 16 and job.__name__ == "job" and job.__doc__ == "Its text."
    with other.lock("job:7"):
        with pytest.raises(mortise.Busy):
            job(7)

    class Account:
        number = 5

        @client.locked(lambda self, *_: f"account:{self.number}", lease="lease")
        def change(self, by, lease=None):
            assert lease.held
            return by

    assert Account().change(3) == 3
    assert client.locked("plain")(lambda: 1)() == 1
    with pytest.raises(KeyError):
        client.locked("{nothing}")(lambda: 1)()
    for wrong in (1, "x", None):
        with pytest.raises(TypeError):
            client.locked("a")(wrong)

    def generator():
        yield 1

    with pytest.raises(TypeError, match="generator"):
        client.locked("a")(generator)


def test_decorator_with_a_lease(client, other):
    """The argument needs no default; the name may have arguments that the function takes by **."""

    @client.locked("job:{id}", lease="lease")
    def job(id, lease, **_more):
        return lease.name

    @client.locked("{kind}:{id}", lease="lease")
    def rest(id=1, **more):
        return more["lease"].name

    assert job(7) == job(id=7) == "job:7" and rest(kind="a") == "a:1" and rest(2, kind="b") == "b:2"
    with pytest.raises(TypeError):
        job()
    with pytest.raises(KeyError):
        rest()
    assert other.list() == []


def test_decorator_of_later_work(client, other):
    """A plain function that returns a coroutine or a generator: neither may run without the lock."""
    steps = []

    async def work():
        steps.append("ran")

    def generator():
        yield steps.append("ran")

    for later in (lambda: work(), lambda: generator()):
        with pytest.raises(TypeError, match="without the lock"):
            client.locked("a")(later)()
        assert not steps and not list(other.list())

    class Job:
        async def __call__(self):
            steps.append([info.name for info in other.list()])

    asyncio.run(client.locked("a")(Job())())
    assert steps == [["a"]]
