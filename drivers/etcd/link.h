/* link.h - the connection to one member of the cluster: its states, and the calls that are made on it.
 *
 *   DOWN        no connection; the next attempt begins at due_ns, if one is wanted
 *   RESOLVING   the endpoint's name is being looked up
 *   CONNECTING  to one of its addresses
 *   SECURING    the TLS handshake
 *   GREETING    HTTP/2 is spoken; authenticates, and asks for the status of the member
 *   UP          calls may be made
 *
 *   event                       DOWN         RESOLVING    CONNECTING    SECURING    GREETING    UP
 *   wanted, the pause is over   RESOLVING a  -            -             -           -           -
 *   addresses are known         -            CONNECTING   -             -           -           -
 *   connected                   -            -            SECURING b    -           -           -
 *   the handshake is done       -            -            -             GREETING    -           -
 *   status: it may be used      -            -            -             -           UP          -
 *   status: it may not c        -            -            -             -           DOWN d      -
 *   the password is refused     -            -            -             -           DOWN d      DOWN d
 *   error, end, no progress     -            DOWN d       CONNECTING e  DOWN d      DOWN d      DOWN f
 *   a call is not answered      -            -            -             -           DOWN d      DOWN f
 *   GOAWAY, nonsense            -            -            -             -           DOWN d      DOWN f
 *   a call fails, and does not
 *     say that it was not done  -            -            -             -           DOWN d      DOWN f
 *
 *   a: the next endpoint of the list. b: GREETING without TLS. c: a learner, or older than 3.4. d: with a pause, when all
 *   endpoints have been tried. e: the next address of the endpoint; DOWN after the last one. f: without a pause if it lasted
 *   for a second.
 *
 * One way to fail. Whatever goes wrong, the whole connection is given up, and every call without an answer is LOST: it may be
 * executed, now or later. Three kinds of answers are no failure of the connection: the call was done; the server says
 * that it was not done (REFUSED); the token of the user was refused (a new one is asked for, and the calls that
 * were refused are sent again).
 *
 * Why the holes are closed:
 *   - The member is stopped, or its machine: no answer within the time of a call. Without calls nobody notices, and nobody
 *     needs to: the first call, which may be a beat, finds it out.
 *   - The member is cut off from the others: every call says `hasleader`, so it fails at once, or is not answered.
 *   - A resolver hangs: it runs on a thread of the core; another look-up of this endpoint is not begun before it has ended.
 *   - The server closes each connection after the greeting: `f` counts that as a failed attempt.
 *   - Two requests for a token at once: calls that are refused meanwhile wait for the one that is on its way. A token that is
 *     refused twice for one call fails the call.
 *   - GOAWAY while calls are on their way: they are LOST, although some may be answered yet.
 *   - A message without an end, or larger than GRPC_MESSAGE_MAX: nonsense.
 *
 * The watches have a stream of their own on the same connection (watch.h). All of it runs in the pump. */
