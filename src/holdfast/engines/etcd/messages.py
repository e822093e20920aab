"""What etcd speaks, as far as it is used here: messages built when this module is imported.

Field numbers and types are facts of etcd's wire. They are made into classes by the protobuf
runtime that is installed, in a pool of their own: no generated code that could be of another
version, and no clash with a program that has brought etcd's own definitions.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "holdfast.etcd"

# A message a line, then its fields: name, number, type. `*` is repeated, a capital is a message.
_LAYOUT = """
Header            cluster_id 1 uint64, member_id 2 uint64, revision 3 int64, raft_term 4 uint64
KeyValue          key 1 bytes, create_revision 2 int64, mod_revision 3 int64, version 4 int64, value 5 bytes,
                  lease 6 int64
Event             type 1 int32, kv 2 KeyValue, prev_kv 3 KeyValue
RangeRequest      key 1 bytes, range_end 2 bytes, limit 3 int64, revision 4 int64, sort_order 5 int32,
                  sort_target 6 int32, serializable 7 bool, keys_only 8 bool, count_only 9 bool,
                  max_create_revision 13 int64
RangeResponse     header 1 Header, kvs 2 *KeyValue, more 3 bool, count 4 int64
PutRequest        key 1 bytes, value 2 bytes, lease 3 int64
PutResponse       header 1 Header
DeleteRequest     key 1 bytes, range_end 2 bytes, prev_kv 3 bool
DeleteResponse    header 1 Header, deleted 2 int64, prev_kvs 3 *KeyValue
RequestOp         request_range 1 RangeRequest, request_put 2 PutRequest, request_delete_range 3 DeleteRequest,
                  request_txn 4 TxnRequest
ResponseOp        response_range 1 RangeResponse, response_put 2 PutResponse, response_delete_range 3 DeleteResponse,
                  response_txn 4 TxnResponse
Compare           result 1 int32, target 2 int32, key 3 bytes, version 4 int64?, create_revision 5 int64?,
                  mod_revision 6 int64?, value 7 bytes?, lease 8 int64?, range_end 64 bytes
TxnRequest        compare 1 *Compare, success 2 *RequestOp, failure 3 *RequestOp
TxnResponse       header 1 Header, succeeded 2 bool, responses 3 *ResponseOp
CompactionRequest     revision 1 int64, physical 2 bool
CompactionResponse    header 1 Header
LeaseGrantRequest     TTL 1 int64, ID 2 int64
LeaseGrantResponse    header 1 Header, ID 2 int64, TTL 3 int64, error 4 string
LeaseRevokeRequest    ID 1 int64
LeaseRevokeResponse   header 1 Header
LeaseKeepAliveRequest   ID 1 int64
LeaseKeepAliveResponse  header 1 Header, ID 2 int64, TTL 3 int64
LeaseTimeToLiveRequest  ID 1 int64, keys 2 bool
LeaseTimeToLiveResponse header 1 Header, ID 2 int64, TTL 3 int64, grantedTTL 4 int64, keys 5 *bytes
LeasesRequest
LeaseStatus           ID 1 int64
LeasesResponse        header 1 Header, leases 2 *LeaseStatus
WatchCreateRequest    key 1 bytes, range_end 2 bytes, start_revision 3 int64, progress_notify 4 bool,
                      filters 5 *int32, prev_kv 6 bool, watch_id 7 int64
WatchCancelRequest    watch_id 1 int64
WatchProgressRequest
WatchRequest          create_request 1 WatchCreateRequest, cancel_request 2 WatchCancelRequest,
                      progress_request 3 WatchProgressRequest
WatchResponse         header 1 Header, watch_id 2 int64, created 3 bool, canceled 4 bool, compact_revision 5 int64,
                      cancel_reason 6 string, events 11 *Event
AuthenticateRequest   name 1 string, password 2 string
AuthenticateResponse  header 1 Header, token 2 string
AuthStatusRequest
AuthStatusResponse    header 1 Header, enabled 2 bool
Member                ID 1 uint64, name 2 string, peerURLs 3 *string, clientURLs 4 *string, isLearner 5 bool
MemberListRequest
MemberListResponse    header 1 Header, members 2 *Member
StatusRequest
StatusResponse        header 1 Header, version 2 string, dbSize 3 int64, leader 4 uint64, raftIndex 5 uint64,
                      raftTerm 6 uint64, raftAppliedIndex 7 uint64, errors 8 *string, dbSizeInUse 9 int64,
                      isLearner 10 bool
AlarmRequest          action 1 int32, memberID 2 uint64, alarm 3 int32
AlarmMember           memberID 1 uint64, alarm 2 int32
AlarmResponse         header 1 Header, alarms 2 *AlarmMember
LockRequest           name 1 bytes, lease 2 int64
LockResponse          header 1 Header, key 2 bytes
UnlockRequest         key 1 bytes
UnlockResponse        header 1 Header
"""

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "uint64": _Field.TYPE_UINT64,
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "string": _Field.TYPE_STRING,
}


def _describe() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="holdfast/etcd.proto", package=PACKAGE, syntax="proto3")
    message = None
    for line in _LAYOUT.strip().splitlines():
        fields = line
        if not line.startswith(" "):
            name, _, fields = line.partition(" ")
            message = file.message_type.add(name=name)
        assert message is not None
        for field in filter(None, (part.strip() for part in fields.split(","))):
            name, number, kind = field.split()
            _add_field(message, name, int(number), kind)
    return file


def _add_field(message: Any, name: str, number: int, kind: str) -> None:
    field = message.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if kind.startswith("*"):
        field.label = _Field.LABEL_REPEATED
    if kind.endswith("?"):
        # One of several, and sent even when it is 0: "no revision" is something to compare with.
        if not message.oneof_decl:
            message.oneof_decl.add(name="one")
        field.oneof_index = 0
    kind = kind.strip("*?")
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"


_pool = descriptor_pool.DescriptorPool()
_pool.AddSerializedFile(_describe().SerializeToString())


def message(name: str) -> Any:
    """The class of a message, by its name."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
