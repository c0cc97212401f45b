//! Macros for the types that cross between host and engine.
//!
//! These types must be able to grow without breaking older plugins. The macro `open_struct!` makes
//! a struct that can gain fields, `open_enum!` an enum that can gain variants, and `methods!` the
//! list of method names of one object.
//!
//! The JSON form follows from the macro. A struct is an object, and most fields have a default. An
//! enum is an object with one key, the name of its variant. If a side reads a name that it does not
//! know, it keeps the name in the variant `Unknown` instead of failing. What that means for the
//! caller is said at each enum.

/// Reads a field for which `null` means the same as no field. A program in another language writes
/// `null` if a variable has no value.
pub(crate) fn null_as_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + serde::Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    let value = <Option<T> as serde::Deserialize>::deserialize(deserializer)?;
    Ok(value.unwrap_or_default())
}

/// Defines a struct that can gain fields: it is non-exhaustive and has one setter for each field,
/// which takes and returns the struct.
macro_rules! open_struct {
    ($(#[$meta:meta])* pub struct $name:ident { $( $(#[$doc:meta])* pub $field:ident: $type:ty, )* }) => {
        $(#[$meta])*
        #[non_exhaustive]
        pub struct $name { $( $(#[$doc])* pub $field: $type, )* }

        impl $name { $(
            #[doc = concat!("The same with this `", stringify!($field), "`.")]
            #[must_use]
            pub fn $field(mut self, $field: $type) -> Self {
                self.$field = $field;
                self
            }
        )* }
    };
}

/// Defines an enum that can gain variants. Its JSON form is `{"name": value}`. A name that this
/// version does not know is kept in the variant `Unknown`, whose doc comment says how to treat it.
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $( $(#[$doc:meta])* $variant:ident($type:ty) = $tag:literal, )* }
        $(#[$unknown:meta])*
        Unknown
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $name {
            $( $(#[$doc])* $variant($type), )*
            $(#[$unknown])*
            Unknown(String),
        }

        impl $name {
            /// The names of all variants that this version knows. `Unknown` is not among them.
            pub const NAMES: &'static [&'static str] = &[$($tag),*];

            /// Returns the name of the variant in its JSON form. For `Unknown` it is the name that
            /// was read.
            pub fn name(&self) -> &str {
                match self {
                    $( Self::$variant(_) => $tag, )*
                    Self::Unknown(name) => name,
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serde::Serializer::serialize_map(serializer, Some(1))?;
                match self {
                    $( Self::$variant(value) => serde::ser::SerializeMap::serialize_entry(&mut map, $tag, value)?, )*
                    // A unit value: a later version's value was not kept, and only the name
                    // matters.
                    Self::Unknown(name) => serde::ser::SerializeMap::serialize_entry(&mut map, name, &())?,
                }
                serde::ser::SerializeMap::end(map)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct One;

                impl<'de> serde::de::Visitor<'de> for One {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("one of `", stringify!($name), "`, by its name"))
                    }

                    fn visit_str<E>(self, name: &str) -> Result<$name, E> {
                        // A plain string is accepted too, as serde writes a variant without a value
                        // that way.
                        Ok($name::Unknown(name.to_owned()))
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        let name: Option<std::borrow::Cow<'de, str>> = map.next_key()?;
                        let name = name.ok_or_else(|| serde::de::Error::invalid_length(0, &self))?;
                        Ok(match name.as_ref() {
                            $( $tag => $name::$variant(map.next_value()?), )*
                            _ => {
                                // The value has to be read even if nobody knows it, or the parser
                                // would stop in the middle.
                                map.next_value::<serde::de::IgnoredAny>()?;
                                $name::Unknown(name.into_owned())
                            }
                        })
                    }
                }

                deserializer.deserialize_any(One)
            }
        }
    };
}

/// Defines an enum of the methods of one object, with their names in the protocol.
macro_rules! methods {
    ($(#[$meta:meta])* pub enum $name:ident { $( $variant:ident = $tag:literal, )* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $( $variant, )* }

        // If the feature `host` is off, one side of each object is not compiled, so some of these
        // have no caller.
        #[cfg_attr(not(feature = "host"), allow(dead_code))]
        impl $name {
            pub(crate) const NAMES: &'static [&'static str] = &[$($tag),*];

            pub(crate) fn name(self) -> &'static str {
                match self { $( Self::$variant => $tag, )* }
            }

            /// Looks a method up by its name.
            ///
            /// # Errors
            /// Returns [`EngineError::UnknownMethod`](crate::EngineError::UnknownMethod) if this
            /// version does not have the method. The caller then uses the default.
            pub(crate) fn called(name: &str) -> Result<Self, crate::EngineError> {
                match name {
                    $( $tag => Ok(Self::$variant), )*
                    _ => Err(crate::EngineError::UnknownMethod(name.to_owned())),
                }
            }
        }
    };
}
