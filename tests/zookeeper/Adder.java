/* Adder.java - Curator's side of interop.sh: adds to the number in a file, under an InterProcessMutex, or reads and writes in
 * turn under an InterProcessReadWriteLock, or goes into a room with two places under an InterProcessSemaphoreV2.
 * Adder ADDRESS FILE TURNS mutex|turns|room */
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.ExponentialBackoffRetry;

public class Adder {
    static long number(Path file) throws Exception {
        return Long.parseLong(Files.readString(file).trim());
    }

    static void add(InterProcessMutex mutex, Path file) throws Exception {
        mutex.acquire();
        try {
            Files.writeString(file, (number(file) + 1) + "\n");
        } finally {
            mutex.release();
        }
    }

    static void read(InterProcessMutex mutex, Path file) throws Exception {
        mutex.acquire();
        try {
            long first = number(file);
            Thread.sleep(10);
            if (number(file) != first)
                throw new Exception("the number changed beside a reader of Curator");
        } finally {
            mutex.release();
        }
    }

    /* The room is a folder beside the file; who is inside has a file in it. */
    static void visit(InterProcessSemaphoreV2 places, Path room, int turn) throws Exception {
        Lease lease = places.acquire();
        try {
            Path own = room.resolve("curator-" + Thread.currentThread().getId() + "-" + turn);
            Files.createFile(own);
            Thread.sleep(10);
            String[] inside = room.toFile().list();
            Files.delete(own);
            if (inside.length > 2)
                throw new Exception("with Curator in the room: " + String.join(" ", inside));
        } finally {
            places.returnLease(lease);
        }
    }

    static void visitTwice(CuratorFramework client, Path room, int turns) throws Exception {
        InterProcessSemaphoreV2 places = new InterProcessSemaphoreV2(client, "/pair/curator-semaphore", 2);
        Exception[] failure = {null};
        Thread other = new Thread(() -> {
            try {
                for (int turn = turns; turn > 0; turn--)
                    visit(places, room, turn);
            } catch (Exception e) {
                failure[0] = e;
            }
        });
        other.start();
        for (int turn = turns; turn > 0; turn--)
            visit(places, room, turn);
        other.join();
        if (failure[0] != null)
            throw failure[0];
    }

    public static void main(String[] words) throws Exception {
        try (CuratorFramework client =
                CuratorFrameworkFactory.newClient(words[0], new ExponentialBackoffRetry(100, 5))) {
            client.start();
            client.blockUntilConnected();
            Files.createFile(Path.of(words[1] + ".begun"));
            Path file = Path.of(words[1]);
            if (words[3].equals("room")) {
                visitTwice(client, Path.of(words[1] + ".room"), Integer.parseInt(words[2]));
                return;
            }
            boolean turns = words[3].equals("turns");
            InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, "/pair/turns");
            InterProcessMutex mutex = new InterProcessMutex(client, "/pair/both");
            for (int turn = Integer.parseInt(words[2]); turn > 0; turn--) {
                add(turns ? both.writeLock() : mutex, file);
                if (turns)
                    read(both.readLock(), file);
            }
        }
    }
}
