/* Adder.java - Curator's side of interop.sh: adds to the number in a file, under an InterProcessMutex.
 * Adder ADDRESS FILE TURNS */
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

public class Adder {
    public static void main(String[] words) throws Exception {
        try (CuratorFramework client =
                CuratorFrameworkFactory.newClient(words[0], new ExponentialBackoffRetry(100, 5))) {
            client.start();
            InterProcessMutex mutex = new InterProcessMutex(client, "/pair/both");
            Path file = Path.of(words[1]);
            for (int turn = Integer.parseInt(words[2]); turn > 0; turn--) {
                mutex.acquire();
                try {
                    long number = Long.parseLong(Files.readString(file).trim());
                    Files.writeString(file, (number + 1) + "\n");
                } finally {
                    mutex.release();
                }
            }
        }
    }
}
