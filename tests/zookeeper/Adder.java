/* Adder.java - Curator's side of interop.sh: adds to the number in a file, under an InterProcessMutex, or reads and writes in
 * turn under an InterProcessReadWriteLock.
 * Adder ADDRESS FILE TURNS mutex|turns */
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
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

    public static void main(String[] words) throws Exception {
        try (CuratorFramework client =
                CuratorFrameworkFactory.newClient(words[0], new ExponentialBackoffRetry(100, 5))) {
            client.start();
            Path file = Path.of(words[1]);
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
